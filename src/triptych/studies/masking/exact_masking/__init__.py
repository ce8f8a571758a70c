"""What masks cost a masked estimator, exactly."""
