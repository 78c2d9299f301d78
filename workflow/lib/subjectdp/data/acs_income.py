"""ACS Income 2018: the census bureau's person files of 51 regions, with the task of folktables (Ding et al. 2021).

A region (50 states and Puerto Rico) is a zip ``csv_p<region>.zip`` with one ``psam_p<code>.csv``, a person a row. Kept
are people older than 16 with an income above $100, some hours of work a week and a weight of at least 1; the label is
an income above $50,000. The ten features are numbers: age, schooling and hours on scales from 0 to 1, the others
one-hot by public code lists (occupations by blocks of 500 codes, places of birth by continent). The joint-noise paper
does not say how it encodes them.
"""

import io
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectdp.data import archives
from subjectdp.data.content import Content, single_items
from subjectdp.data.splits import VECTOR
from subjectdp.errors import DataError

_NAMES = (
    "al ak az ar ca co ct de fl ga hi id il in ia ks ky la me md ma mi mn ms mo mt ne nv nh nj nm ny nc nd oh ok or pa "
    "ri sc sd tn tx ut vt va wa wv wi wy pr"
)
REGIONS = tuple(_NAMES.split())
"""The silos, in the order of the states' census codes."""

THRESHOLD = 50_000  # dollars
SCALES = {"AGEP": 99.0, "SCHL": 24.0, "WKHP": 99.0}
CODES = {"COW": range(1, 10), "MAR": range(1, 6), "SEX": range(1, 3), "RAC1P": range(1, 10), "RELP": range(18)}
OCCUPATIONS = 20  # blocks of 500 codes
BIRTHPLACES = (56, 99, 199, 299, 399, 499, 999)  # last codes: states, territories, and then the continents
WIDTH = len(SCALES) + sum(len(codes) for codes in CODES.values()) + OCCUPATIONS + len(BIRTHPLACES)
COLUMNS = (*SCALES, *CODES, "OCCP", "POBP", "PINCP", "PWGTP")
_LARGEST_FILE = 1 << 30  # bytes; California's has about 200 MB


def load_upstream(folder: Path) -> Content:
    """The 51 zip files in ``folder``; each region is a silo. Raises DataError for a missing or damaged file."""
    tables = [read_region(folder / file_name(region)) for region in REGIONS]
    features = np.concatenate([encode(table) for table in tables])
    return Content(
        dataset="acs_income",
        kind=VECTOR,
        features=features,
        labels=np.concatenate([(table["PINCP"] > THRESHOLD).to_numpy(dtype=np.uint8) for table in tables]),
        classes=2,
        silo_names=tuple(region.upper() for region in REGIONS),
        silos=np.repeat(np.arange(len(REGIONS), dtype=np.int16), [len(table) for table in tables]),
        **single_items(len(features)),
    )


def file_name(region: str) -> str:
    """The zip of a region."""
    return f"csv_p{region}.zip"


def read_region(path: Path) -> pd.DataFrame:
    """The people of one region whom the task keeps; DataError for a file that is none of the census'."""
    with archives.open_archive(path, _LARGEST_FILE) as archive:
        files = [member for member in archive.members if member.name.lower().endswith(".csv")]
        if len(files) != 1:
            raise DataError(f"{path}: expected one .csv file of people, found {len(files)}.")
        content = archive.read(files[0])
    try:
        people = pd.read_csv(io.BytesIO(content), usecols=list(COLUMNS), dtype=np.float64)
    except (ValueError, UnicodeDecodeError) as error:  # a column is missing, a cell is no number, no CSV
        reason = str(error).splitlines()[0][:200]
        raise DataError(f"{path}: expected the census' columns {', '.join(COLUMNS)} of numbers ({reason}).") from None
    kept = people[(people["AGEP"] > 16) & (people["PINCP"] > 100) & (people["WKHP"] > 0) & (people["PWGTP"] >= 1)]
    if kept.empty:
        raise DataError(f"{path} holds nobody whom the task keeps.")
    return kept


def encode(people: pd.DataFrame) -> NDArray[np.float32]:
    """(people, WIDTH) features; a code that is missing or unknown is all zeros."""
    parts = [(people[name] / most).fillna(0.0).clip(0, 1).to_numpy()[:, None] for name, most in SCALES.items()]
    parts += [people[name].to_numpy()[:, None] == np.array(codes) for name, codes in CODES.items()]
    parts.append((people["OCCP"].to_numpy() // 500)[:, None] == np.arange(OCCUPATIONS))
    places = people["POBP"].fillna(1e9).to_numpy()
    parts.append(np.searchsorted(BIRTHPLACES, places)[:, None] == np.arange(len(BIRTHPLACES)))
    return np.concatenate(parts, axis=1).astype(np.float32)
