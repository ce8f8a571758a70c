"""One sampling algorithm per file, on protocols; examples() state the law each one keeps."""
