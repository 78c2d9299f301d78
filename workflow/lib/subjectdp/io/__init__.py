"""Files that are whole or absent: atomic writers and checksums."""
