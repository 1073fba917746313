"""Writes statistics_scipy.json: what SciPy says about fixed samples, for statistics_test.cpp.

    python3 statistics_scipy.py > statistics_scipy.json     (numpy, scipy 1.11 or newer)
"""

import json

import numpy
import scipy.stats

resamples = 200_000


def samples(seed, count, scale=1e-3, spread=0.02, digits=9):
    """Times in seconds, skewed as times are. Few digits make ties, as a clock's resolution does."""
    draws = numpy.random.default_rng(seed).lognormal(0, spread, count)
    return [float(x) for x in numpy.round(scale * draws, digits)]


def summary(data):
    interval = scipy.stats.quantile_test(data, q=0, p=0.5).confidence_interval(0.95)
    return {
        "samples": data,
        "quantiles": [[p, float(numpy.quantile(data, p))] for p in (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)],
        "gmean": float(scipy.stats.gmean(data)),
        "interval": None if numpy.isnan(interval.low) else [float(interval.low), float(interval.high)],
    }


def rank(n):
    """The k of the interval [x_k, x_(n+1-k)] of the median: largest with P(B < k) <= 2.5 %."""
    k = int(scipy.stats.binom.ppf(0.025, n, 0.5))
    assert scipy.stats.binom.cdf(k - 1, n, 0.5) <= 0.025 < scipy.stats.binom.cdf(k, n, 0.5)
    return k


def bracket(distribution, probability):
    """Four standard errors around a quantile of the simulated distribution."""
    slack = 4 * numpy.sqrt(probability * (1 - probability) / resamples)
    bounds = [max(probability - slack, 0), min(probability + slack, 1)]
    return [float(x) for x in numpy.quantile(distribution, bounds)]


def ratio(base, head, confidence):
    result = scipy.stats.bootstrap(
        (base, head),
        lambda b, h, axis: numpy.median(h, axis=axis) / numpy.median(b, axis=axis),
        n_resamples=resamples, batch=10_000, vectorized=True, paired=False, method="percentile",
        confidence_level=confidence, random_state=7)
    tail = (1 - confidence) / 2
    return {
        "base": base, "head": head, "confidence": confidence,
        "value": float(numpy.median(head) / numpy.median(base)),
        "low": bracket(result.bootstrap_distribution, tail),
        "high": bracket(result.bootstrap_distribution, 1 - tail),
    }


print(json.dumps({
    "scipy": scipy.__version__,
    "summaries": [summary(samples(n, n)) for n in (1, 2, 5, 6, 7, 20, 101, 200)]
    + [summary(samples(3, 30, digits=5))],
    "ranks": [[n, rank(n)] for n in [*range(6, 61), 99, 100, 101, 200, 1000, 9999, 100_000]],
    "ratios": [
        ratio(samples(10, 6), samples(11, 6), 0.95),
        ratio(samples(12, 7), samples(13, 9), 0.95),
        ratio(samples(14, 20), samples(15, 20, scale=1.03e-3), 0.95),
        ratio(samples(16, 101), samples(17, 64, spread=0.1), 0.95),
        ratio(samples(18, 20), samples(19, 21, spread=0.05), 0.99),
        ratio(samples(20, 200, digits=5), samples(21, 200, digits=5), 0.995),
    ],
}, indent=1))
