"""Names of territories, languages, scripts and currencies as the Unicode CLDR has them: which language is a name in?"""

from collections import Counter
from collections.abc import Iterator

from babel import Locale

LANGUAGES = ("cs", "de", "en", "es", "fi", "fr", "hu", "it", "nl", "pl", "pt", "sv")


def read() -> Iterator[dict[str, str]]:
    """Yields {"text": name, "label": language}, one language after another, its names in the order of their letters.

    A name that several of the languages share, such as Peru, has no one answer and is left out. Upper and lower case
    are taken as one there, for some languages write a name with a small letter and others with a capital.
    """
    names = {language: _names(Locale(language)) for language in LANGUAGES}
    num_languages = Counter(folded for texts in names.values() for folded in texts)
    for language, texts in names.items():
        for folded, text in sorted(texts.items()):
            if num_languages[folded] == 1:
                yield {"text": text, "label": language}


def _names(locale: Locale) -> dict[str, str]:
    """Returns each name once, by its spelling without case."""
    kinds = (locale.territories, locale.languages, locale.scripts, locale.currencies)
    texts = {text for kind in kinds for text in kind.values() if any(letter.isalpha() for letter in text)}
    return {text.casefold(): text for text in sorted(texts)}
