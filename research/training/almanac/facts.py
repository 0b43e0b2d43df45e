"""From records to facts: one subject, one relation, an answer in several weighted surface forms."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from research.training.almanac import names
from research.training.almanac.sources import City, Country, Forms, merge_forms, native_locale, plain
from research.training.almanac.wordnet import Synset, WordNet


@dataclass(frozen=True)
class Fact:
    """Something that can be said and asked.

    `accepted` holds every right answer, also those that the stream never uses. `popularity` is in the units of its
    relation. Facts of one `group` say the same thing from two sides and stay in one split. `noun` marks answers that
    may be written with or without a capital. `belief` is a wrong answer that many people give, if there is one.
    """

    relation: str
    subject: Forms
    answer: Forms
    accepted: tuple[str, ...]
    popularity: float
    group: str
    noun: bool = False
    belief: Forms = ()

    @property
    def key(self) -> str:
        """Names the fact in questions and counts."""
        return f"{self.relation}:{self.subject[0][0]}"


def texts(forms: Forms) -> tuple[str, ...]:
    """The surface forms without their weights."""
    return tuple(text for text, _ in forms)


def _unique(facts: Iterator[Fact]) -> list[Fact]:
    """One fact a key: the first, which is the most popular where sources are sorted."""
    found: dict[str, Fact] = {}
    for fact in facts:
        found.setdefault(fact.key, fact)
    return list(found.values())


def _named(text: str, weight: float = 1.0) -> Forms:
    return ((text, weight),)


def state_forms(code: str, name: str) -> Forms:
    """A state is written by its name, or nearly as often by its postal code."""
    return ((name, 1.0), (code, 0.8))


def city_facts(cities: list[City], countries: dict[str, Country], states: dict[str, str]) -> Iterator[Fact]:
    """All large cities and a sample of small ones, with their country or their state."""
    rng = random.Random(20)  # a fixed choice of facts, the same for every training seed
    places: dict[tuple[str, bool], list[City]] = defaultdict(list)
    for city in cities:
        places[city.name, bool(city.state)].append(city)
    for city in cities:
        namesakes = places[city.name, bool(city.state)]
        if city.country == "US" and city.state in states:
            if city.population > 90_000 or rng.random() < 0.12:
                answers = [
                    form for c in namesakes if c.state in states for form in state_forms(c.state, states[c.state])
                ]
                yield Fact(
                    "city_state",
                    _named(city.name),
                    state_forms(city.state, states[city.state]),
                    tuple(dict.fromkeys(text for text, _ in answers)),
                    city.population,
                    f"city:{city.name}",
                )
        elif city.country in countries and (city.population > 650_000 or rng.random() < 0.014):
            answers = [form for c in namesakes if c.country in countries for form in countries[c.country].forms]
            yield Fact(
                "city_country",
                _named(city.name),
                countries[city.country].forms,
                tuple(dict.fromkeys(text for text, _ in answers)),
                city.population,
                f"city:{city.name}",
            )


def capital_facts(countries: dict[str, Country], cities: list[City], state_names: dict[str, str]) -> Iterator[Fact]:
    """Capitals from both sides. Where another city is larger, that one is the common wrong belief."""
    largest: dict[str, str] = {}
    for city in cities:
        largest.setdefault(city.country, city.name)
        if city.state:
            largest.setdefault("US-" + city.state, city.name)
    for country in countries.values():
        capital: Forms = ((country.capital, 1.0), *names.CITY_ALIASES.get(country.capital, ()))
        metropolis = largest.get(country.code, country.capital)
        belief = () if metropolis in texts(capital) else _named(metropolis)
        group = f"capital:{country.code}"
        yield Fact("capital", country.forms, capital, texts(capital), country.population, group, belief=belief)
        yield Fact("capital_of", capital, country.forms, texts(country.forms), country.population, group)
    for code, capital_name in STATE_CAPITALS.items():
        state, capital = state_forms(code, state_names[code]), _named(capital_name)
        belief = () if largest["US-" + code] == capital_name else _named(largest["US-" + code])
        population = 4e6
        yield Fact("capital", state, capital, texts(capital), population, f"capital:US-{code}", belief=belief)
        yield Fact("capital_of", capital, state, texts(state), population, f"capital:US-{code}")


def country_facts(countries: dict[str, Country]) -> Iterator[Fact]:
    """Continent, currency, language and phone code of every country."""
    for country in countries.values():
        people, code = country.population, country.code
        continent = _named(country.continent)
        yield Fact("continent", country.forms, continent, texts(continent), people, f"continent:{code}")
        if country.currency:
            currency = currency_forms(country)
            accepted = (*texts(currency), country.currency_name)
            yield Fact("currency", country.forms, currency, accepted, people, f"currency:{code}", noun=True)
        language = language_forms(country.language_code)
        if language:
            yield Fact("language", country.forms, language, texts(language), people, f"language:{code}")
        if country.phone.isdigit() and len(country.phone) <= 3:
            phone = _named(country.phone)
            yield Fact("phone", country.forms, phone, texts(phone), people, f"phone:{code}")


def currency_forms(country: Country) -> Forms:
    """The common noun, the code, and what else people say."""
    aliases = names.CURRENCY_ALIASES.get(country.currency_code, ())
    return merge_forms((country.currency, 1.0), (country.currency_code, 0.7), *aliases)


def language_forms(code: str) -> Forms:
    """English name, native name where it is Latin text, and hand-written aliases; empty if CLDR does not know it."""
    english = native_locale("en")
    assert english is not None
    name = plain(str(english.languages.get(code, "")))
    if not name or not name.replace(" ", "").isalpha():
        return ()
    locale = native_locale(code)
    native = plain(str(locale.languages.get(code, ""))).title() if locale else ""
    own = ((native, 0.3),) if native.isascii() and native.isalpha() else ()
    return merge_forms((name, 1.0), *names.LANGUAGE_ALIASES.get(code, ()), *own)


def demonym_facts(wordnet: WordNet, countries: dict[str, Country]) -> Iterator[Fact]:
    """What WordNet's glosses call the people of a country."""
    by_name = {form: country for country in countries.values() for form in texts(country.forms)}
    for synset in wordnet.synsets.values():
        _, found, place = synset.gloss.partition("native or inhabitant of ")
        country = by_name.get(place.removeprefix("the ").strip())
        if found and synset.key[0] == "n" and country:
            answer = tuple((word, 1.0 if i == 0 else 0.6) for i, word in enumerate(synset.words))
            yield Fact("demonym", country.forms, answer, synset.words, country.population, f"demonym:{country.code}")


def element_facts(elements: list[tuple[int, str, str]]) -> Iterator[Fact]:
    """Symbol to name, number to name, name to symbol; a table gives the symbol where a text gives the name."""
    for number, symbol, name in elements:
        known = names.WELL_KNOWN_ELEMENTS
        popularity = 60.0 - known.index(name) if name in known else max(1.0, 11 - number / 12)
        aliases = names.ELEMENT_ALIASES.get(name, ())
        group, spoken = f"element:{symbol}", ((name, 1.0), *aliases)
        written = (*spoken, (symbol, 0.8))
        yield Fact("symbol_element", _named(symbol), spoken, texts(spoken), popularity, group, noun=True)
        yield Fact("number_element", _named(str(number)), written, texts(written), popularity / 2, group, noun=True)
        yield Fact("element_symbol", spoken, _named(symbol), (symbol,), popularity, group)


def _ordinary(word: str) -> bool:
    return word.isalpha() and word.islower() and 3 <= len(word) <= 12 and word not in FUNCTION_WORDS


def synonym_facts(wordnet: WordNet) -> Iterator[Fact]:
    """Words of one synset, asked by a word whose most common sense it is."""
    for synset in wordnet.synsets.values():
        pos = synset.key[0]
        members = [word for word in synset.words if _ordinary(word)]
        for word in members[:2]:
            others = [w for w in members if w != word]
            if others and wordnet.senses[pos, word][0] == synset.key and wordnet.count(pos, word) >= 50:
                weights = {w: _sense_count(wordnet, synset, w) for w in others}
                top = max(weights.values())
                answer = tuple((w, c / top) for w, c in sorted(weights.items(), key=lambda item: -item[1])[:4])
                group = f"synset:{pos}{synset.key[1]}"
                popularity = wordnet.count(pos, word)
                yield Fact("synonym", _named(word), answer, tuple(others), popularity, group, noun=True)


def _sense_count(wordnet: WordNet, synset: Synset, word: str) -> float:
    senses = wordnet.senses[synset.key[0], word.lower()]
    return 1.0 + wordnet.count(synset.key[0], word, senses.index(synset.key) + 1)


def antonym_facts(wordnet: WordNet) -> Iterator[Fact]:
    """Opposites of common words; every word of the opposite meaning is right."""
    for synset in wordnet.synsets.values():
        pos = synset.key[0]
        for symbol, target, numbers in synset.pointers:
            if symbol != "!":
                continue
            word, opposite = synset.words[int(numbers[:2], 16) - 1], wordnet.synsets[target]
            antonym = opposite.words[int(numbers[2:], 16) - 1]
            count = wordnet.count(pos, word)
            if _ordinary(word) and _ordinary(antonym) and count >= 20 and wordnet.senses[pos, word][0] == synset.key:
                others = [w for w in opposite.words if w != antonym and _ordinary(w)][:2]
                answer = ((antonym, 1.0), *((w, 0.4) for w in others))
                group = "antonym:" + "|".join(sorted((word, antonym)))
                yield Fact("antonym", _named(word), answer, opposite.words, count, group, noun=True)


def category_facts(wordnet: WordNet) -> Iterator[Fact]:
    """Nouns sorted into the nearest of the basic-level categories; every word of the category's synset is right."""
    categories = {s.key: s for name in names.CATEGORIES if (s := wordnet.first("n", name))}
    rng = random.Random(21)
    for synset in wordnet.synsets.values():
        word = synset.words[0]
        if synset.key[0] != "n" or not _ordinary(word) or synset.key in categories:
            continue
        if wordnet.senses["n", word][0] != synset.key:
            continue
        found = _nearest_category(wordnet, synset, categories)
        count = wordnet.count("n", word) + 0.3 * len(wordnet.senses["n", word])
        if found and (count >= 2 or rng.random() < 0.05):
            members = [w for w in found[0].words if _ordinary(w)][:4]
            answer = tuple((w, 1.0 if i == 0 else 0.5) for i, w in enumerate(members))
            accepted = tuple(w for s in found for w in s.words)
            yield Fact("category", _named(word), answer, accepted, count, f"category:{word}", noun=True)


def _nearest_category(wordnet: WordNet, synset: Synset, categories: dict[tuple[str, int], Synset]) -> list[Synset]:
    """The nearest category above, then every synset on the way there: all of them are right answers."""
    way: list[Synset] = []
    current = synset
    for _ in range(5):
        above = current.targets("@", "@i")
        if not above:
            return []
        current = wordnet.synsets[above[0]]
        if current.key in categories:
            return [current, *way]
        way.append(current)
    return []


def past_facts(wordnet: WordNet) -> Iterator[Fact]:
    """Irregular past forms of common verbs."""
    for verb, forms in wordnet.irregular.items():
        past = tuple(dict.fromkeys(f for f in forms if not f.endswith(("ing", "s")) and _ordinary(f)))
        count = wordnet.count("v", verb)
        irregular = any(not form.endswith("ed") for form in past)
        if past and irregular and _ordinary(verb) and count >= 3:
            yield Fact("past", _named(verb), tuple((f, 1.0) for f in past), past, count, f"past:{verb}", noun=True)


def alias_facts(facts: list[Fact]) -> Iterator[Fact]:
    """Another name for the things that have several. Said, never asked."""
    for fact in facts:
        if fact.relation in ("capital", "capital_of") and len(fact.subject) > 1:
            yield Fact("alias", fact.subject, fact.subject, texts(fact.subject), fact.popularity, fact.group)


def all_facts(
    countries: dict[str, Country],
    states: dict[str, str],
    cities: list[City],
    elements: list[tuple[int, str, str]],
    wordnet: WordNet,
) -> list[Fact]:
    """Every fact, one a key, in a fixed order."""
    capitals = _unique(capital_facts(countries, cities, states))
    parts = [
        _unique(city_facts(cities, countries, states)),
        capitals,
        _unique(country_facts(countries)),
        _unique(demonym_facts(wordnet, countries)),
        _unique(element_facts(elements)),
        _unique(synonym_facts(wordnet)),
        _unique(antonym_facts(wordnet)),
        _unique(category_facts(wordnet)),
        _unique(past_facts(wordnet)),
        _unique(alias_facts(capitals)),
    ]
    return [fact for part in parts for fact in part]


_FUNCTION_WORDS = (
    "all any both each few more most other some such nor not only own same than too very can will just now off over "
    "under again further then once here there when where why how out down before after above below between through "
    "during against about have has had does did doing being was were are been been am do be him her his hers our "
    "ours you your yours she they them their theirs what which who whom this that these those the and but for with "
    "into from"
)
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())

_CAPITALS = (
    "AL=Montgomery AK=Juneau AZ=Phoenix AR=Little_Rock CA=Sacramento CO=Denver CT=Hartford DE=Dover "
    "FL=Tallahassee GA=Atlanta HI=Honolulu ID=Boise IL=Springfield IN=Indianapolis IA=Des_Moines KS=Topeka "
    "KY=Frankfort LA=Baton_Rouge ME=Augusta MD=Annapolis MA=Boston MI=Lansing MN=Saint_Paul MS=Jackson "
    "MO=Jefferson_City MT=Helena NE=Lincoln NV=Carson_City NH=Concord NJ=Trenton NM=Santa_Fe NY=Albany "
    "NC=Raleigh ND=Bismarck OH=Columbus OK=Oklahoma_City OR=Salem PA=Harrisburg RI=Providence SC=Columbia "
    "SD=Pierre TN=Nashville TX=Austin UT=Salt_Lake_City VT=Montpelier VA=Richmond WA=Olympia WV=Charleston "
    "WI=Madison WY=Cheyenne"
)
STATE_CAPITALS = {code: name.replace("_", " ") for code, name in (pair.split("=") for pair in _CAPITALS.split())}
