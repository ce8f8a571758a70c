"""Running studies: units, workers, the store."""
