"""Figures are drawn coarsely and once: tests look at values, texts and layout, not at pixels."""

from collections.abc import Callable, Iterator

import pytest

from figures.made_up import MADE, papers
from subjectdp.figures import panels
from subjectdp.results.collect import FigureInputs


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], FigureInputs]:
    """The made-up inputs of a figure; each kind is made once."""
    found: dict[object, FigureInputs] = {}

    def inputs_of(figure: str) -> FigureInputs:
        make = MADE.get(figure, papers)
        if make not in found:
            found[make] = make(tmp_path_factory.mktemp(figure))
        return found[make]

    return inputs_of


@pytest.fixture(scope="session", autouse=True)
def light() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "_TYPICAL_DPI", 40)
        yield
