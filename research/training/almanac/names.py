"""Names written by hand, where the libraries have none: aliases and their weights relative to the main name (1.0).

The weights say roughly how often each form is met in English text beside the main name. They were written before the
first training and were not adjusted to any score.
"""

from __future__ import annotations

COUNTRY_NAMES = {  # plainer names than the data source gives
    "NL": "Netherlands",
    "CD": "DR Congo",
    "CG": "Congo",
    "MK": "Macedonia",
    "TL": "Timor",
    "FM": "Micronesia",
    "VC": "St Vincent",
    "KN": "St Kitts",
    "ST": "Sao Tome",
    "SZ": "Eswatini",
    "CV": "Cabo Verde",
    "PS": "Palestine",
    "GM": "Gambia",
    "BS": "Bahamas",
}

COUNTRY_ALIASES: dict[str, tuple[tuple[str, float], ...]] = {
    "US": (("US", 1.0), ("USA", 1.0), ("America", 0.7)),
    "GB": (("UK", 1.2), ("Britain", 0.9), ("GB", 0.2)),
    "AE": (("UAE", 1.0), ("Emirates", 0.4)),
    "NL": (("Holland", 0.8),),
    "MM": (("Burma", 0.8),),
    "IR": (("Persia", 0.4),),
    "TH": (("Siam", 0.3),),
    "CZ": (("Czech", 0.3),),
    "LK": (("Ceylon", 0.3),),
    "KR": (("Korea", 0.8),),
    "KH": (("Kampuchea", 0.2),),
    "CI": (("Ivoire", 0.2),),
    "SZ": (("Swaziland", 0.8),),
    "CD": (("DRC", 0.8), ("Zaire", 0.5), ("Congo", 0.6)),
    "CN": (("PRC", 0.4),),
    "TW": (("Formosa", 0.3), ("ROC", 0.2)),
    "RU": (("Rossiya", 0.15),),
    "JP": (("Nippon", 0.25),),
    "IN": (("Bharat", 0.25),),
    "GR": (("Hellas", 0.2),),
    "EG": (("Misr", 0.15),),
    "BD": (("Bengal", 0.2),),
    "ET": (("Abyssinia", 0.2),),
    "CV": (("Cape Verde", 0.6),),
    "SA": (("KSA", 0.6),),
    "ZA": (("RSA", 0.6),),
    "NZ": (("Aotearoa", 0.2),),
    "PG": (("PNG", 0.8),),
    "IE": (("Eire", 0.3),),
    "CH": (("Helvetia", 0.15), ("Schweiz", 0.3), ("Suisse", 0.3)),
    "BE": (("Belgie", 0.2), ("Belgique", 0.2)),
    "BY": (("Belorussia", 0.2),),
    "MD": (("Moldavia", 0.3),),
    "ZW": (("Rhodesia", 0.2),),
    "BJ": (("Dahomey", 0.15),),
    "BF": (("Burkina", 0.5),),
    "BA": (("Bosnia", 0.9),),
    "TT": (("Trinidad", 0.8),),
    "DO": (("Dominicana", 0.2),),
    "TR": (("Turkiye", 0.5),),
    "KZ": (("Qazaqstan", 0.15),),
    "UA": (("Ukraina", 0.15),),
}

CITY_ALIASES: dict[str, tuple[tuple[str, float], ...]] = {  # capitals with two current spellings
    "Kyiv": (("Kiev", 0.9),),
    "Beijing": (("Peking", 0.5),),
    "Brasilia": (("Brasília", 0.4),),
    "Bucharest": (("Bucuresti", 0.2),),
    "Washington": (("DC", 0.6),),
    "Nur-Sultan": (("Astana", 1.0),),
    "Rome": (("Roma", 0.4),),
    "Prague": (("Praha", 0.3),),
    "Vienna": (("Wien", 0.3),),
    "Lisbon": (("Lisboa", 0.3),),
    "Warsaw": (("Warszawa", 0.3),),
    "Moscow": (("Moskva", 0.2),),
    "Copenhagen": (("Kobenhavn", 0.2),),
    "Brussels": (("Bruxelles", 0.4),),
    "Bern": (("Berne", 0.6),),
    "Yangon": (("Rangoon", 0.8),),
    "Dhaka": (("Dacca", 0.5),),
    "Mexico City": (("CDMX", 0.4),),
    "Tripoli": (("Tarabulus", 0.2),),
    "Mogadishu": (("Muqdisho", 0.2),),
    "Damascus": (("Dimashq", 0.2),),
    "Pristina": (("Prishtina", 0.5),),
    "Chisinau": (("Kishinev", 0.5),),
    "Ulaanbaatar": (("Ulan Bator", 0.6),),
    "Hagåtña": (("Hagatna", 0.9),),
}

LANGUAGE_ALIASES: dict[str, tuple[tuple[str, float], ...]] = {
    "fa": (("Farsi", 0.9),),
    "zh": (("Mandarin", 0.9),),
    "es": (("Castilian", 0.3),),
    "tl": (("Tagalog", 0.9),),
    "fil": (("Tagalog", 0.9),),
    "nl": (("Flemish", 0.3),),
    "my": (("Myanmar", 0.3),),
    "km": (("Cambodian", 0.5),),
    "bn": (("Bangla", 0.7),),
    "lo": (("Laotian", 0.5),),
    "ms": (("Bahasa", 0.5),),
    "id": (("Bahasa", 0.5),),
    "ga": (("Gaelic", 0.6),),
    "si": (("Singhalese", 0.5),),
    "dv": (("Maldivian", 0.6),),
    "el": (("Hellenic", 0.2),),
}

CURRENCY_ALIASES: dict[str, tuple[tuple[str, float], ...]] = {
    "CNY": (("renminbi", 0.7), ("RMB", 0.6)),
    "GBP": (("sterling", 0.5), ("quid", 0.2)),
    "USD": (("buck", 0.15),),
    "KRW": (("KRW", 0.1),),
    "EUR": (("euros", 0.3),),
    "RUB": (("rouble", 0.5),),
    "BYN": (("rouble", 0.5),),
}

ELEMENT_ALIASES: dict[str, tuple[tuple[str, float], ...]] = {
    "aluminum": (("aluminium", 0.9),),
    "sulfur": (("sulphur", 0.7),),
    "cesium": (("caesium", 0.7),),
    "tungsten": (("wolfram", 0.5),),
    "sodium": (("natrium", 0.2),),
    "potassium": (("kalium", 0.2),),
    "mercury": (("quicksilver", 0.4),),
    "hydrogen": (),
}

_ELEMENTS = (
    "gold iron oxygen hydrogen silver carbon copper lead nitrogen helium mercury aluminum sodium potassium calcium "
    "zinc tin uranium sulfur chlorine nickel platinum silicon phosphorus neon iodine magnesium lithium titanium "
    "plutonium argon fluorine tungsten chromium cobalt manganese boron arsenic radium barium bromine radon krypton "
    "xenon beryllium cesium palladium vanadium bismuth antimony"
)
WELL_KNOWN_ELEMENTS = _ELEMENTS.split()

_CATEGORIES = (  # basic-level nouns (WordNet's most common noun sense of each) that things are sorted into
    "bird fish dog cat horse insect snake lizard frog spider monkey whale shark butterfly beetle tree shrub flower "
    "grass vine fern mushroom herb fruit vegetable bread cheese meat soup sauce wine beer cake candy spice disease "
    "illness drug car boat ship aircraft weapon gun knife tool instrument garment shoe hat fabric furniture building "
    "house church dance music game sport language color currency religion physician lawyer soldier teacher criminal "
    "musician artist writer scientist worker book poem mammal rodent bear turtle antelope duck vehicle truck airplane "
    "container bag jewelry mineral rock metal gem acid hormone vitamin bone muscle organ gland war river mountain "
    "lake island desert emotion feeling crime punishment tax ceremony holiday mathematician philosopher"
)
CATEGORIES = _CATEGORIES.split()
