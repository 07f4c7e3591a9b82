"""The languages of the synthetic web: common words of each, how they are joined, and the charsets its sites use.

Data only. Words of a language must be encodable in every charset listed for it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Language:
    """One language: `words` in running order of frequency, `gap` between two words, `stop` after a sentence."""

    code: str
    words: tuple[str, ...]
    charsets: tuple[str, ...]
    gap: str = " "
    stop: str = ". "


def _language(code: str, charsets: str, words: str, gap: str = " ", stop: str = ". ") -> Language:
    return Language(code, tuple(words.split()), ("utf-8", *charsets.split()), gap, stop)


LANGUAGES: tuple[Language, ...] = (
    _language(
        "en",
        "iso-8859-1 utf-16",
        "the of and to in is that for it was with as his on be at by this had not are but from or have an they "
        "which one you were her all she there would their we him been has when who will more no if out so said "
        "what up its about into than them can only other new some could time these two may then do first any my "
        "now such like our over man me even most made after also did many before must through years where much "
        "your way well down should because each just those people how too little state good very make world still "
        "own see men work long get here between both life being under never day same another know while last might "
        "us great old year off come since",
    ),
    _language(
        "de",
        "iso-8859-1 windows-1252",
        "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er "
        "hat dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder aber vor "
        "zur bis mehr durch man sein wurde sei hatte kann gegen vom können schon wenn habe seine ihre dann unter "
        "wir soll ich eines jahr zwei jahren diese dieser wieder keine seiner worden will zwischen immer millionen "
        "was sagte größe straße häuser möglich später während müssen würde früher gehört führen",
    ),
    _language(
        "fr",
        "iso-8859-1 windows-1252",
        "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il sont avec ou son "
        "lui nous comme mais on si leur elle devoir avant deux même prendre aussi celui donner bien fois vous "
        "encore nouveau aller entre premier déjà grand mon me moins aucun lors temps très savoir falloir voir "
        "quelque sans raison notre dont non année monde jour monsieur demander alors après trouver personne rendre "
        "part dernier venir pendant été à où était première société générale créé",
    ),
    _language(
        "es",
        "iso-8859-1",
        "de la que el en y a los se del las un por con no una su para es al lo como más o pero sus le ha me si sin "
        "sobre este ya entre cuando todo esta ser son dos también fue había era muy años hasta desde está mi "
        "porque qué sólo han yo hay vez puede todos así nos ni parte tiene él uno donde bien tiempo mismo ese "
        "ahora cada vida otro después te otros aunque esa eso hace otra gobierno tan durante siempre día tanto "
        "ella tres señor",
    ),
    _language(
        "pl",
        "iso-8859-2 windows-1250",
        "w i na z do się nie że jest o to od za po jak co są dla przez tym ale był tak już lub które być także "
        "tego tylko może jego ich jej było oraz przed przy sobie który która roku jeszcze pod nad nas ten ta te "
        "bardzo gdy czy więc między można wszystko życie człowiek świat dzień każdy miasto część łódź źródło "
        "środek",
    ),
    _language(
        "ru",
        "windows-1251 koi8-r",
        "и в не на я быть он с что а по это она этот к но они мы весь который из у который то за свой что весь год "
        "от так о для ты же все тот мочь вы человек такой его сказать только или ещё бы себя один как уже до время "
        "если сам когда другой вот говорить наш мой знать стать при чтобы дело жизнь кто первый очень два день её "
        "новый рука даже во со раз где там под можно ну какой после их работа без самый потом надо хотеть ли слово "
        "идти большой должен",
    ),
    _language(
        "el",
        "iso-8859-7",
        "και το να του η της με που την από για τα είναι των σε ο οι στο θα τη στην τον τους δεν τις ένα μια ότι "
        "ως στη στα κατά μας έχει αλλά ή σας αυτό όπως αυτή μετά πως ήταν πολύ μου όταν στον πιο έναν χρόνια μέρα "
        "κόσμος ζωή πρώτη άνθρωπος νέα μεγάλο πόλη χώρα",
    ),
    _language(
        "ar",
        "windows-1256",
        "في من على أن إلى التي عن لا ما هذا مع هو كان هذه الذي ذلك بعد كل هي بين قد لم أو أي حتى إن كانت عند وقد "
        "كما لكن قبل أكثر اليوم غير منذ العالم خلال يوم عام بعض دولة حيث مدينة حياة عمل كبير جديد أول الناس وقت "
        "بيت كتاب",
    ),
    _language(
        "hi",
        "",
        "के है में की से को का और पर हैं यह कि इस ने भी नहीं एक हो तो कर था लिए या वह गया जो करने साथ अपने दिया "
        "रहा बाद जा कहा हुए होने ही लोग समय कुछ अब दिन सरकार भारत वर्ष काम बहुत जीवन नया पहला",
        stop="। ",
    ),
    _language(
        "ja",
        "shift_jis euc-jp",
        "日本 東京 世界 時間 生活 新聞 会社 学校 電車 研究 問題 情報 社会 経済 文化 歴史 自然 音楽 写真 料理 は が "
        "を に で と も から まで より という について として こと もの ため とき ところ している された であり "
        "または そして しかし 大きな 小さな 新しい 古い 多くの 人々 今日 明日 昨年 最近 重要な 必要 考える 見る "
        "行く 来る 使う 作る",
        gap="",
        stop="。",
    ),
    _language(
        "ko",
        "euc-kr",
        "그리고 그러나 있는 것은 우리 나라 사람 시간 세계 사회 경제 문화 역사 자연 음악 사진 요리 학교 회사 연구 "
        "문제 정보 오늘 내일 작년 최근 중요한 필요한 생각하다 보다 가다 오다 사용하다 만들다 이 그 저 에서 까지 "
        "보다 대한 위해 새로운 오래된 많은 큰 작은 때문에 하지만 또는 서울 도시 생활 처음 마지막",
    ),
    _language(
        "zh",
        "gb18030 gbk",
        "的 一 是 在 不 了 有 和 人 这 中 大 为 上 个 国 我 以 要 他 时 来 用 们 生 到 作 地 于 出 就 分 对 成 会 "
        "可 主 发 年 动 同 工 也 能 下 过 子 说 产 种 面 而 方 后 多 定 行 学 法 所 民 得 经 中国 北京 世界 时间 "
        "生活 社会 经济 文化 历史 自然 音乐 研究 问题 信息 学校 公司 城市 今天 明天 重要 需要",
        gap="",
        stop="。",
    ),
)

BY_CODE = {language.code: language for language in LANGUAGES}

# ASCII words for paths: a path's words must not depend on the language, so that most URLs stay plain.
SLUGS: tuple[str, ...] = tuple(
    "amber anchor apple arrow autumn bakery basket beacon birch bridge brook candle canyon cedar chapel cliff "
    "clover cobalt comet copper coral cotton crane crystal dawn delta desert dune eagle echo ember falcon fern "
    "field fjord flint forest fox garden glacier granite grove harbor hazel heron hill island ivory jade juniper "
    "kettle lagoon lantern lark laurel lemon lichen lilac linen lotus maple marble meadow mill mint mirror moss "
    "nectar north oak oasis olive onyx orchard otter owl paper pearl pebble pine plum pond poppy prairie quarry "
    "quartz quill rain raven reed ridge river robin rose saffron sail salt sand silver sky slate snow sparrow "
    "spring stone storm summer swan thistle thyme tide timber tulip valley velvet violet walnut water wheat willow "
    "wind winter wood wool yarrow".split()
)
SECTIONS: tuple[str, ...] = ("news", "wiki", "blog", "docs", "shop", "archive", "people", "places", "notes", "guides")
