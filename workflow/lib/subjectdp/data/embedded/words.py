"""Word lists and sentence patterns of the embedded plays, all written for them."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(" ".join(phrase.split()) for phrase in text.split("|"))


NOUNS = _words(
    """
    lantern ladder river orchard kettle window bridge harbour candle garden letter mirror ribbon
    basket anchor barrel feather hammer pillow saddle thimble whistle meadow chimney button cellar
    mountain stranger neighbour teacher baker miller sailor farmer painter tailor uncle sister
    cousin widow brother master evening morning winter summer harvest thunder shadow silence market
    money bread butter honey apple onion pepper copper silver story riddle promise secret answer
    question quarrel journey supper shoulder finger pocket corner table door clock wheel stone horse
    goose spider herring sparrow donkey kitten weather moonlight sunrise snow rain
    """
)

ADJECTIVES = _words(
    """
    little broken golden quiet patient crooked bitter gentle hollow clever rusty narrow foolish
    honest hungry lonely merry pale proud restless sleepy sudden tender weary wooden yellow ancient
    borrowed careful distant empty faithful heavy idle jealous kindly muddy nimble painted ragged
    salty silent stubborn thirsty tidy unlucky velvet windy wicked young
    """
)

VERBS = _words(
    """
    carry follow forget mend steal sell bury borrow answer watch trust paint count measure scatter
    gather polish hide leave keep break open burn wash sharpen bless swallow remember lose find
    weigh chase frighten praise
    """
)
"""Transitive verbs, bare form; the third person adds s or es."""

ADVERBS = _words(
    """
    always never slowly again tomorrow tonight seldom gladly softly badly already twice often
    somewhere together alone indeed perhaps quickly backwards
    """
)

ADDRESSES = _phrases(
    """
    my friend | good neighbour | old fellow | dear cousin | captain | madam | your honour | child |
    gentle people | my sweet | master | you rascal | brother | kind stranger | dear heart | young
    man
    """
)

OPENERS = _phrases(
    """
    Listen, | Upon my word, | I tell you, | Well, well, | Look here, | Between ourselves, | Alas, |
    Ho there, | Believe me, | By my boots, | As I was saying, | Hush now, | Good heavens, | To be
    plain, | Mark this, | Bless my whiskers, | Once more, | On the other hand, | Saints and
    herrings, | If you please,
    """
)

CLOSERS = _phrases(
    """
    and that is all | or so they say | as everybody knows | and no mistake | if I may say so | and
    there it ends | like it or not | as my mother said | and so good night | for what it is worth |
    and who could blame me | until the tide turns | but never mind | and the devil take the rest
    """
)

PATTERNS = (
    "the {a} {n} {vs} the {n}",
    "I {v} the {n} of the {a} {n}",
    "will you {v} my {n}, {x}?",
    "there is no {n} in {p} so {a} as this {n}",
    "I have seen a {a} {n} in {p}",
    "we {v} the {n} and the {n} {d}",
    "do not {v} the {n}, {x}",
    "who can {v} a {n} without a {n}?",
    "when the {n} is {a}, I {v} it {d}",
    "my {n} is {a}, my {n} is {a}",
    "they say that {p} will {v} the {n}",
    "give me a {n}, a {n} and a {a} {n}",
    "a {n} for you, {x}, and a {n} for me",
    "he {vs} his {n} and I {v} mine",
    "what is a {n} to a {a} {n}?",
    "let the {n} {v} itself {d}",
    "she {d} {vs} the {a} {n} of {p}",
    "if the {n} {vs} the {n}, then {v} it {d}",
    "no {n}, no {n}, and not a word of {p}",
    "you {d} {v} what the {n} {vs}",
    "I would rather {v} a {n} than {v} the {n}",
    "the {n} of {p} is {a} and {a}",
    "come to {p}, {x}, and {v} the {n}",
    "all my {n} was {a} before the {n} came",
)
"""Sentence patterns: n noun, a adjective, v verb (vs: third person), d adverb, x address, p own word."""

NAMES = _phrases(
    """
    ROLLO | BETTINA | OLD GRIM | TAMSIN | PERRICK | DUCHESS | FIRST BAKER | SECOND BAKER | ORLAND |
    MILLICENT | HOB | QUENBY | CAPTAIN | WIDOW TARN | FENNIMORE | ISOLT | JACKDAW | KEEPER | LADY
    VANE | MORRIS | NELL | OSWIN | PIPKIN | RAFE | SYBELLA | TOBIAS | URSULINE | VICAR | WINNOW |
    YOUNG GRIM | ZACHARY | APOTHECARY | BARNABY | CLEMENCE | DOGSBODY | ERASMA | FERRYMAN | GODWIN |
    HESTER | INNKEEPER | JOSSE | KATRIN | LUTEMAKER | MARGERY | NOTARY | OTTOLINE | PASTRYCOOK |
    RUFUS | SEXTON | THISTLE
    """
)

PLAY_SUBJECTS = _phrases(
    """
    CLOCKMAKER | HERRING SELLER | LAMPLIGHTER | FALSE MAYOR | SECOND WEDDING | DROWNED BELL | KITE
    THIEVES | WINTER FAIR | LOST UMBRELLA
    """
)

PLAY_PLACES = _phrases(
    """
    VELLANORE | DUNWICK SANDS | ST OBBLE | THE SEVEN WEIRS
    """
)

ONSETS = _words("b c d f g h j k l m n p q r s t v w z br dr gl kr pl sk st th tr")

VOWELS = _words("a e i o u ae ou ee")

CODAS = ("", *_words("n l rk st m ck ss"))
"""Beginnings, middles and ends of the syllables of invented words."""
