"""A label in both languages of the app."""

from typing import NamedTuple

LANGUAGES = ("en", "zh")


class Text(NamedTuple):
    """Hold one label in English and Chinese.

    Both may carry ``str.format`` fields; the two must use the same fields.
    """

    en: str
    zh: str

    def say(self, language: str) -> str:
        """Give the label in ``language``.

        Args:
            language: One of ``LANGUAGES``.

        Raises:
            ValueError: If the language is not known.
        """
        if language not in LANGUAGES:
            raise ValueError(f"language must be one of {', '.join(LANGUAGES)}, got {language!r}")
        return self.zh if language == "zh" else self.en

    def fill(self, **fields: object) -> "Text":
        """Give the label with its fields filled in; a ``Text`` field fills each language with its own words."""
        return Text(
            *(
                self.say(lang).format(**{k: v.say(lang) if isinstance(v, Text) else v for k, v in fields.items()})
                for lang in LANGUAGES
            )
        )


def same(word: str) -> Text:
    """Give a label that reads the same in both languages, such as a formula or a name."""
    return Text(word, word)


class Refusal(ValueError):
    """Misuse or a request that cannot be met, as one sentence in each language.

    ``str(error)`` is the English sentence, so that code outside the app sees an ordinary ``ValueError``.
    """

    def __init__(self, text: Text):
        super().__init__(text.en)
        self.text = text
