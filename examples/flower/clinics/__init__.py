"""A Flower app: three clinics learn what a visit costs."""
