"""Usage over time: which pod held how many GPUs for how long, and how that adds up.

Pure arithmetic with integers on segments of time. It knows neither where segments come from
(objects of the API, a store) nor how they are shown, and no other domain.
"""
