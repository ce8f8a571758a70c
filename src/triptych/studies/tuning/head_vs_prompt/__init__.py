"""Head tuning against prompt tuning on pretrained networks [wei, 5]."""
