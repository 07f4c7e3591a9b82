"""Main text in ten languages, two of them written from right to left: fifty pages, five layouts for each language."""

from __future__ import annotations

import pytest

from weft.extract.page import extract

# language -> (two sentences, a headline, what is beside the text)
WORDS = {
    "en": (
        "The river rose for three days, and the town waited on its roofs. Nobody had seen so much water, they said.",
        "The river and the town",
        "Share this page",
    ),
    "de": (
        "Der Fluss stieg drei Tage lang, und die Stadt wartete auf ihren Dächern. Niemand hatte "
        "je so viel Wasser gesehen.",
        "Der Fluss und die Stadt",
        "Beitrag teilen",
    ),
    "fr": (
        "La rivière a monté pendant trois jours, et la ville attendait sur ses toits. Personne "
        "n'avait vu autant d'eau.",
        "La rivière et la ville",
        "Partager cette page",
    ),
    "es": (
        "El río creció durante tres días, y el pueblo esperaba en sus tejados. Nadie había visto nunca tanta agua.",
        "El río y el pueblo",
        "Compartir esta página",
    ),
    "ru": (
        "Река поднималась три дня, и город ждал на крышах. Мы думали, что это самая длинная ночь "
        "в нашей жизни. Всё, что было в подвалах, пропало, но люди помогали друг другу.",
        "Река и город",
        "Поделиться страницей",
    ),
    "tr": (
        "Nehir üç gün boyunca yükseldi ve kasaba çatılarda bekledi. Hiç kimse bu kadar çok su görmemişti, dediler.",
        "Nehir ve kasaba",
        "Bu sayfayı paylaş",
    ),
    "ar": (
        "ارتفع النهر ثلاثة أيام، وانتظرت المدينة فوق أسطحها. لم ير أحد من قبل هذا القدر من الماء، هكذا قال الناس هناك.",
        "النهر والمدينة",
        "شارك هذه الصفحة",
    ),
    "he": (
        "הנהר עלה במשך שלושה ימים, והעיירה המתינה על הגגות. איש לא ראה מעולם כמות כזאת של מים, כך אמרו התושבים שם.",
        "הנהר והעיירה",
        "שתפו את הדף",
    ),
    "zh": (
        "河水上涨了三天，镇上的人们在屋顶上等待。他们说，从来没有人见过这么多的水。老人们记得"
        "从前的洪水，但没有一次像今年这样。学校关闭了，商店也关闭了，邻居们互相帮助，把粮食和"
        "孩子们送到高处去。",
        "河流与小镇",
        "分享此页",
    ),
    "ja": (
        "川は三日間にわたって水かさを増し、町の人々は屋根の上で待っていた。これほどの水を見た"
        "者は誰もいないと人々は言った。学校も店も閉まり、隣人たちは互いに助け合って、食べ物と"
        "子どもたちを高い場所へ運んだ。",
        "川と町",
        "このページを共有",
    ),
}
LAYOUTS = {
    "article": "<article><h1>{title}</h1><div class=byline>A. B.</div>{text}</article><aside>{beside}</aside>",
    "main": "<nav><a href=/>{beside}</a></nav><main><h1>{title}</h1>{text}</main><footer>{beside}</footer>",
    "blocks": "<div><a href=/>{beside}</a></div><div><div>{text}</div><div class=share>{beside}</div></div>",
    "breaks": "<table><tr><td class=menu>{beside}</td><td>{broken}</td></tr></table>",
    "comments": "<main>{text}<div id=comments><div class=comment>{beside}</div></div></main>",
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("language", WORDS)
def test_the_text_is_found_and_what_is_beside_it_is_not(language: str, layout: str) -> None:
    prose, title, beside = WORDS[language]
    lines = [f"{number}. {prose} {prose}" for number in range(1, 9)]
    body = LAYOUTS[layout].format(
        title=title, beside=beside, text="".join(f"<p>{line}</p>" for line in lines), broken="<br><br>".join(lines)
    )
    direction = "rtl" if language in ("ar", "he") else "ltr"
    html = f"<html dir={direction}><head><meta property=og:type content=article><title>{title}</title></head>{body}"
    read = extract(html.encode(), "https://site.test/2024/05/river", "text/html; charset=utf-8")
    assert [line for line in read.main_text.split("\n") if line] == lines
    assert beside not in read.markdown
    assert read.language == language
