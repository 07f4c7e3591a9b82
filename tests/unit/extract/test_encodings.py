"""Encodings of the web, each there and back: declared by header, by meta, by a byte order mark, and not at all."""

from __future__ import annotations

import pytest

from weft.extract.charset import decode

TEXTS = {
    "de": "Die Straße führt über die Brücke, wo früher die Mühle stand. Größere Häuser gehören später den Söhnen.",
    "fr": "Ça a été très drôle: la première société générale créée à Orléans, où les élèves étaient déjà passés.",
    "es": "El señor González preguntó cuándo vendría mañana la niña; después llegó también el año que está aquí.",
    "pl": "Zażółć gęślą jaźń. W Łodzi każdy człowiek może wszystko, a życie jest źródłem świata i środkiem dnia.",
    "cs": "Příliš žluťoučký kůň úpěl ďábelské ódy. Žádná stránka není bez háčků a čárek, říká učitel jazyka.",
    "ro": "În România, oamenii vorbesc limba română, precum ă, â și î; această pagină este un exemplu pentru toți.",
    "ru": "Привет, мир! Это обычный русский текст, по которому видно, в какой кодировке страница каждый день.",
    "uk": "Це звичайна українська сторінка, щоб перевірити, чи правильно визначається кодування. Її читають щодня.",
    "bg": "Това е обикновена българска страница, за да се провери дали кодирането се разпознава правилно.",
    "el": "Αυτή είναι μια ελληνική σελίδα, για να δούμε αν αναγνωρίζεται η κωδικοποίηση των χαρακτήρων της.",
    "tr": "Bu sayfa Türkçe yazılmıştır; karakter kodlamasının doğru tanınıp tanınmadığını görmek için çocuklar.",
    "he": "זהו דף בעברית, כדי לבדוק אם קידוד התווים מזוהה נכון גם בלי הצהרה בכותרת. היום יום יפה מאוד.",
    "ar": "هذه صفحة باللغة العربية، لنرى هل يتم التعرف على ترميز الحروف بشكل صحيح. الشمس تشرق كل يوم على المدينة.",
    "th": "นี่คือหน้าเว็บภาษาไทยเพื่อตรวจสอบว่าการเข้ารหัสอักขระถูกตรวจพบอย่างถูกต้องหรือไม่ วันนี้อากาศดีมาก",
    "vi": "Dây là trang tiêng Viêt, có dâu.",
    "lt": "Tai yra lietuviškas puslapis, skirtas patikrinti, ar teisingai atpažįstama koduotė. Žmonės čia skaito.",
    "lv": "Šī ir latviešu lapa, lai pārbaudītu, vai kodējums tiek pareizi atpazīts. Cilvēki to lasa katru dienu.",
    "et": "See on eestikeelne lehekülg, et kontrollida, kas kodeering tuvastatakse õigesti. Žürii ja šokolaad.",
    "is": "Þetta er íslensk síða til að athuga hvort stafasettið er þekkt rétt. Það er gott veður í dag.",
    "ga": "Is leathanach Gaeilge é seo chun a fháil amach an bhfuil an t-ionchódú á aithint i gceart.",
    "mt": "Din hija paġna bil-Malti biex naraw jekk il-kodifikazzjoni hijiex magħrufa sew. Iż-żmien sabiħ ħafna.",
    "ja": "日本語のページです。文字コードを自動的に判別できるかどうかを確かめます。カタカナもあります。",
    "zh": "这是一个中文网页,用来检查能不能自动识别它的字符编码。今天天气很好,我们一起去公园散步。",
    "tw": "這是一個中文網頁,用來檢查能不能自動識別它的字元編碼。今天天氣很好,我們一起去公園散步。",
    "ko": "이것은 한국어 페이지입니다. 문자 인코딩을 자동으로 알아낼 수 있는지 확인합니다. 오늘은 날씨가 좋습니다.",
}

# label:Python's codec:text; a leading `!` where only a declaration can tell
ENCODINGS = """
utf-8:utf-8:de utf-16le:utf-16-le:ru utf-16be:utf-16-be:ja utf-32le:utf-32-le:de utf-32be:utf-32-be:de
windows-1252:cp1252:de iso-8859-1:latin-1:es us-ascii:cp1252:fr iso-8859-15:iso-8859-15:fr !macintosh:mac_roman:fr
iso-8859-2:iso-8859-2:pl iso-8859-2:iso-8859-2:cs windows-1250:cp1250:pl windows-1250:cp1250:cs !ibm852:cp852:pl
!iso-8859-3:iso-8859-3:mt iso-8859-4:iso-8859-4:lv !iso-8859-10:iso-8859-10:is iso-8859-13:iso-8859-13:lt
windows-1257:cp1257:lt !windows-1257:cp1257:et !iso-8859-14:iso-8859-14:ga !iso-8859-16:iso-8859-16:ro
!windows-1258:cp1258:vi windows-1251:cp1251:ru windows-1251:cp1251:uk windows-1251:cp1251:bg koi8-r:koi8-r:ru
koi8-u:koi8-u:uk iso-8859-5:iso-8859-5:ru ibm866:cp866:ru !x-mac-cyrillic:mac_cyrillic:ru !ibm855:cp855:ru
iso-8859-7:iso-8859-7:el windows-1253:cp1253:el iso-8859-9:iso-8859-9:tr windows-1254:cp1254:tr
iso-8859-8:iso-8859-8:he iso-8859-8-i:iso-8859-8:he windows-1255:cp1255:he !ibm862:cp862:he
iso-8859-6:iso-8859-6:ar windows-1256:cp1256:ar windows-874:cp874:th tis-620:tis-620:th
shift_jis:shift_jis:ja windows-31j:cp932:ja euc-jp:euc-jp:ja iso-2022-jp:iso-2022-jp:ja
gb2312:gb2312:zh gbk:gbk:zh gb18030:gb18030:zh !hz-gb-2312:hz:zh big5:big5:tw big5-hkscs:big5hkscs:tw
euc-kr:euc-kr:ko windows-949:cp949:ko !johab:johab:ko iso-2022-kr:iso2022_kr:ko !ibm437:cp437:de !ibm850:cp850:de
""".split()


def parts(encoding: str) -> tuple[str, str, str]:
    label, codec, language = encoding.removeprefix("!").split(":")
    text = TEXTS[language].encode(codec, "ignore").decode(codec)
    return label, codec, f"<!doctype html><html><head>{{}}<title>{text}</title></head><body><p>{text}</p></body></html>"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_declared_by_the_header(encoding: str) -> None:
    label, codec, html = parts(encoding)
    html = html.format("<meta charset=utf-8>")
    read = decode(html.encode(codec), f'text/html; charset="{label.upper()}"')
    assert (read.text, read.source) == (html, "header")


@pytest.mark.parametrize(
    "encoding", [encoding for encoding in ENCODINGS if not encoding.startswith(("utf-16", "utf-32"))]
)
def test_declared_by_a_meta(encoding: str) -> None:
    label, codec, html = parts(encoding)
    for meta in (f"<meta charset={label}>", f"<meta http-equiv=content-type content='text/html; charset={label}'>"):
        page = html.format(meta)
        read = decode(page.encode(codec), "text/html")
        assert (read.text, read.source) == (page, "meta")


@pytest.mark.parametrize("encoding", [encoding for encoding in ENCODINGS if encoding.startswith("utf")])
def test_detected_by_a_byte_order_mark(encoding: str) -> None:
    label, codec, html = parts(encoding)
    read = decode(("\ufeff" + html).encode(codec), "text/html; charset=windows-1252")
    assert read == (html, label, "bom")


@pytest.mark.parametrize("encoding", [encoding for encoding in ENCODINGS if not encoding.startswith("!")])
def test_not_declared_at_all(encoding: str) -> None:
    _, codec, html = parts(encoding)
    html = html.format("")
    read = decode(html.encode(codec))
    assert (read.text, read.source) == (html, "detected")


def test_there_are_as_many_as_promised() -> None:
    assert len({encoding.split(":")[1] for encoding in ENCODINGS}) >= 48
