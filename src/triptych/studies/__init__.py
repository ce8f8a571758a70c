"""One study per file: settings, units, run, claims, figures. A module with STUDY is found."""
