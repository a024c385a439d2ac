"""The mathematics as functions of arrays: one step of a Kalman filter, its fixed points, real-valued time."""
