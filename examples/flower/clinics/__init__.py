"""A Flower app: three clinics learn to predict the cost of a visit."""
