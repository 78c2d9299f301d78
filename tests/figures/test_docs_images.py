"""No picture in docs/images is older than the code of its figure: a PNG says what drew it (``catalogue.drawn_by``)."""

from pathlib import Path

import pytest
from PIL import Image

from subjectdp.figures.catalogue import FIGURES, drawn_by

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


@pytest.mark.parametrize("image", sorted(IMAGES.glob("*.png")), ids=lambda path: path.name)
def test_a_picture_is_not_older_than_its_figures_code(image: Path) -> None:
    source = Image.open(image).info.get("Source", "")
    figure = source.partition(" ")[0]
    assert figure in FIGURES, f"{image.name} does not say which figure it is: draw it anew"
    assert source == drawn_by(figure), f"{image.name} was drawn by other code of {figure}: draw it anew"
