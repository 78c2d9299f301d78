"""ACS Income 2018: the census bureau's person files of 51 regions, with the task of folktables (Ding et al. 2021).

A region (50 states and Puerto Rico) is a zip ``csv_p<region>.zip`` with one ``psam_p<code>.csv``, a person a row. Kept
are people older than 16 with an income above $100, some hours of work a week and a weight of at least 1; the label is
an income above $50,000. The ten features are numbers: age, schooling and hours on scales from 0 to 1, the others
one-hot by public code lists (occupations by blocks of 500 codes, places of birth by continent). The joint-noise paper
does not say how it encodes them. The embedded people are of regions of very different sizes, each with a distribution
of its own.
"""

import io
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from subjectdp.data import archives
from subjectdp.data.content import VECTOR, Content, single_items
from subjectdp.errors import DataError, expected
from subjectdp.io import atomic
from subjectdp.noise.keys import Purpose, numpy_generator

_NAMES = (
    "al ak az ar ca co ct de fl ga hi id il in ia ks ky la me md ma mi mn ms mo mt ne nv nh nj nm ny nc nd oh ok or pa "
    "ri sc sd tn tx ut vt va wa wv wi wy pr"
)
REGIONS = tuple(_NAMES.split())  # the silos, in the order of the states' census codes

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
    labels = np.concatenate([(table["PINCP"] > THRESHOLD).to_numpy(dtype=np.uint8) for table in tables])
    silos = np.repeat(np.arange(len(REGIONS), dtype=np.int16), [len(table) for table in tables])
    facts = single_items(len(features)) | {"silo_names": tuple(region.upper() for region in REGIONS), "silos": silos}
    return Content("acs_income", VECTOR, features, labels, classes=2, **facts)


def file_name(region: str) -> str:
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


# --- the embedded files, made up ------------------------------------------------------------------------------

FEWEST = 30  # people of a region
_TIMESTAMP = (2019, 1, 1, 0, 0, 0)


def write_files(folder: Path, subjects: int, items_per_subject: int, seed: int) -> list[Path]:
    """Writes the 51 zips with about ``subjects`` times ``items_per_subject`` people in all; returns their paths."""
    people = subjects * items_per_subject
    if people < FEWEST * len(REGIONS):
        allowed = f"such that subjects times items are at least {FEWEST * len(REGIONS)} for acs_income"
        raise expected("data.embedded.items_per_subject", items_per_subject, allowed)
    generator = numpy_generator(seed, Purpose.EMBEDDED_DATA, "census")
    shares = np.exp(generator.normal(0, 1.0, len(REGIONS)))
    sizes = FEWEST + np.floor((people - FEWEST * len(REGIONS)) * shares / shares.sum()).astype(int)
    paths = []
    for number, (region, size) in enumerate(zip(REGIONS, sizes.tolist(), strict=True)):
        paths.append(folder / file_name(region))
        with atomic.atomic_path(paths[-1]) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            entry = zipfile.ZipInfo(f"psam_p{number + 1:02d}.csv", _TIMESTAMP)
            archive.writestr(entry, _people(size, generator).to_csv(index=False))
    return paths


def _people(size: int, generator: np.random.Generator) -> pd.DataFrame:
    """People of one region, about a tenth of whom the task drops; wages follow schooling, hours, age and occupation."""
    level, slope = generator.normal(11.0, 0.2), generator.normal(0.12, 0.03)
    age, hours = generator.integers(10, 90, size), generator.integers(0, 70, size)
    school, work = generator.integers(1, 25, size), generator.integers(0, 20, size)
    logs = level + slope * (school - 16) + 0.02 * (hours - 40) + 0.04 * (work - 10)
    logs += -0.0006 * (age - 50) ** 2 + generator.normal(0, 0.5, size)
    columns = {name: generator.choice(np.array(codes), size) for name, codes in CODES.items()}
    columns |= {"AGEP": age, "SCHL": school, "WKHP": hours, "OCCP": 500 * work + generator.integers(0, 500, size)}
    columns |= {"POBP": generator.choice([6, 36, 48, 110, 210, 303, 420], size), "PWGTP": np.full(size, 100)}
    columns |= {"PINCP": np.rint(np.exp(logs) / 10).astype(int) * 10, "SERIALNO": np.arange(size)}
    return pd.DataFrame(columns)
