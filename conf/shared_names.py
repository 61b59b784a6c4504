"""Names as the Unicode CLDR has them, each with all the languages that write it so: Peru is one in many of them."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from babel import Locale
from language_id import LANGUAGES


def read() -> Iterator[dict[str, Any]]:
    """Yields {"text": name, "label": [language, ...]} of each name, in the order of their letters.

    Upper and lower case are taken as one: of the spellings of a name the first language's is shown.
    """
    texts: dict[str, str] = {}
    languages: dict[str, list[str]] = defaultdict(list)
    for language in LANGUAGES:
        locale = Locale(language)
        for kind in (locale.territories, locale.languages, locale.scripts, locale.currencies):
            for text in sorted(kind.values()):
                texts.setdefault(text.casefold(), text)
                languages[text.casefold()].append(language)
    for folded, text in sorted(texts.items()):
        yield {"text": text, "label": languages[folded]}
