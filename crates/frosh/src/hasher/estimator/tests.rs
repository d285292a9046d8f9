use super::*;
use crate::random::{Purpose, Stream};

const SPREAD: LogScale = LogScale { low: 0.5, high: 20.0 };

#[test]
fn a_scale_is_within_half_a_step_inside_its_range_and_clamps_outside() {
    let scale = LogScale::around([0.5, 20.0, 0.0, f64::NAN].into_iter(), NORM_TAIL).unwrap();
    assert_eq!(scale, SPREAD);
    for count in [RATIOS, NORMS, OWN_BYTE_VALUES] {
        let step = 40f64.ln() / (count - 1) as f64;
        for i in 0..1000 {
            let value = 0.5 * 40f64.powf(f64::from(i) / 999.0);
            let back = scale.value(scale.place(value, count), count);
            assert!((back / value).ln().abs() <= step * 0.500_01, "{value} {back}");
        }
        assert_eq!((scale.place(1e-9, count), scale.place(1e9, count)), (0, count - 1));
    }
    assert!(LogScale::around([0.0].into_iter(), NORM_TAIL).is_none());
    // A range of a single value is valid.
    let one = LogScale::around([3.0].into_iter(), NORM_TAIL).unwrap();
    assert!(one.is_valid());
    assert_eq!((one.place(3.0, 9), one.place(8.0, 9), one.value(0, 9)), (0, 8, 3.0));
}

#[test]
fn factors_come_back_within_half_a_step_of_each_scale() {
    let ratio = LogScale { low: 0.1, high: 0.3 };
    let gain = LogScale { low: 0.05, high: 6.0 };
    let scales = [
        (Scales::Joint { norm: SPREAD, ratio, residual: 0.2 }, 40f64.ln() / 27.0, 3f64.ln() / 8.0),
        (
            Scales::Apart { norm: SPREAD, gain, residual: 0.0 },
            40f64.ln() / 254.0,
            120f64.ln() / 254.0,
        ),
    ];
    for (scales, norm_step, gain_step) in scales {
        let scales = scales.checked().unwrap();
        let tables = scales.tables();
        let mut bytes = vec![9u8; scales.bytes()];
        for i in 0..40 {
            for j in 0..40 {
                let norm = 0.5 * 40f64.powf(f64::from(i) / 39.0);
                let gain = norm * 0.1 * 3f64.powf(f64::from(j) / 39.0);
                scales.encode(Factors { norm, gain }, &mut bytes);
                let far = |table: usize, byte: u8, value: f64| {
                    (f64::from(tables[table][usize::from(byte)]) / value).ln().abs()
                };
                assert!(far(0, bytes[0], norm) <= norm_step * 0.500_01);
                // The ratio refers to the quantised norm, which adds its own half step.
                let last = bytes[bytes.len() - 1];
                assert!(far(1, last, gain) <= (norm_step + gain_step) * 0.500_01);
            }
        }
        scales.encode(Factors { norm: 0.0, gain: 0.0 }, &mut bytes);
        assert!(bytes.iter().all(|b| *b == 0));
        assert_eq!((tables[0][0], tables[1][0]), (0.0, 0.0));
        assert!(tables.iter().flatten().all(|x| x.is_finite()));
        // A row orthogonal to all directions: its ratio is clamped to the end of the range.
        scales.encode(Factors { norm: 1e9, gain: 0.0 }, &mut bytes);
        assert!((tables[0][usize::from(bytes[0])] - 20.0).abs() < 1e-4);
    }
    let wrong = LogScale { low: 2.0, high: 1.0 };
    assert!(Scales::Joint { norm: SPREAD, ratio: wrong, residual: 0.0 }.checked().is_err());
    assert!(Scales::Apart { norm: wrong, gain, residual: 0.0 }.checked().is_err());
    for residual in [-0.1, 1.1, f64::NAN] {
        assert!(Scales::Joint { norm: SPREAD, ratio, residual }.checked().is_err());
    }
}

#[test]
fn the_estimate_is_exact_where_the_row_is_the_query() {
    let u = [0.5f32, -2.0, 1.0, -0.25];
    let norm: f64 = u.iter().map(|x| f64::from(x * x)).sum();
    let factors = Factors::new(norm, &u, 1.0, 0.0);
    let s: f32 = u.iter().map(|x| x.abs()).sum();
    assert!((2.0 * norm - 2.0 * factors.gain * f64::from(s)).abs() < 1e-6);
    assert_eq!(Factors::new(0.0, &[0.0; 4], 1.0, 0.5), Factors { norm: 0.0, gain: 0.0 });
}

#[test]
fn the_square_norm_is_the_sum_of_squares() {
    for len in [1, 15, 16, 17, 100] {
        let row: Vec<f32> = (0..len).map(|i| i as f32 * 0.5).collect();
        let centre: Vec<f32> = (0..len).map(|i| (i % 7) as f32).collect();
        let want: f64 =
            row.iter().zip(&centre).map(|(x, c)| f64::from(x - c) * f64::from(x - c)).sum();
        assert!((square_norm(&row, &centre) - want).abs() <= 1e-5 * want);
    }
}

/// The mean squared error of `count` equal steps from -z to z, for a standard normal distribution.
fn error(z: f64, count: usize) -> f64 {
    let step = 2.0 * z / (count - 1) as f64;
    let cells = 20_000;
    let width = 16.0 / f64::from(cells);
    let one = |i: i32| {
        let x = -8.0 + (f64::from(i) + 0.5) * width;
        let place = ((x + z) / step).round().clamp(0.0, (count - 1) as f64);
        (x + z - place * step).powi(2) * (-x * x / 2.0).exp()
    };
    (0..cells).map(one).sum::<f64>() * width / (2.0 * std::f64::consts::PI).sqrt()
}

#[test]
fn the_tails_are_those_of_the_best_equal_steps_for_a_normal_distribution() {
    for (tail, count) in [(NORM_TAIL, NORMS), (RATIO_TAIL, RATIOS)] {
        let (mut low, mut high) = (0.0, 8.0);
        for _ in 0..60 {
            let z = (low + high) / 2.0;
            let residual = libm::erfc(z / std::f64::consts::SQRT_2) / 2.0;
            *(if residual > tail { &mut low } else { &mut high }) = z;
        }
        let here = error(low, count);
        for other in [0.9, 0.98, 1.02, 1.1] {
            assert!(here < error(other * low, count), "{count} values to {low}: {here}");
        }
    }
}

/// Norms of some rows, and gains that are a third of them, more or less.
fn usual(rows: usize) -> Vec<Factors> {
    let mut stream = Stream::new(11, Purpose::Sample, 0, 0);
    let mut one = || {
        let norm = (0.3 * stream.normal()).exp();
        Factors { norm, gain: norm / 3.0 * (0.1 * stream.normal()).exp() }
    };
    (0..rows).map(|_| one()).collect()
}

fn ends(sample: &[Factors]) -> [f64; 4] {
    match Scales::around(sample, 0.0, 1).unwrap().checked().unwrap() {
        Scales::Joint { norm, ratio, .. } => [norm.low, norm.high, ratio.low, ratio.high],
        Scales::Apart { .. } => unreachable!("new scales are joint"),
    }
}

/// How much wider the ranges of norm and ratio are than those of the usual rows.
fn stretched(sample: &[Factors], usual: &[Factors]) -> f64 {
    let length = |e: &[f64; 4]| [(e[1] / e[0]).ln(), (e[3] / e[2]).ln()];
    let (now, before) = (length(&ends(sample)), length(&ends(usual)));
    (now[0] / before[0]).max(now[1] / before[1])
}

#[test]
fn outliers_do_not_widen_the_ranges() {
    let zero = Factors { norm: 1e-7, gain: 1e-12 };
    let huge = Factors { norm: 1e7, gain: 3e6 };
    let across = Factors { norm: 1.0, gain: 1e-9 };
    for rows in [10, 30, 200, 1000, 4096] {
        let usual = usual(rows);
        for strange in [zero, huge, across] {
            let mut sample = usual.clone();
            sample[rows / 3] = strange;
            let by = stretched(&sample, &usual);
            // In a small sample, the next value in order may differ more.
            let most = if rows < 1000 { 2.0 } else { 1.1 };
            assert!(by < most, "{rows} rows, {strange:?}: {by} times as long");
        }
    }
    // Many nearly zero rows in data with mean zero: the range ends at the median divided by 16.
    let mut sample = usual(1000);
    sample.iter_mut().step_by(5).for_each(|row| *row = zero);
    let [low, high, ..] = ends(&sample);
    assert!(low > 0.05 && high > 1.5, "{low} to {high}");
}

#[test]
fn small_samples_and_equal_rows_give_valid_ranges() {
    let one = Factors { norm: 2.0, gain: 0.5 };
    for rows in [1, 2, 9, 10, 11, 1000] {
        assert_eq!(ends(&vec![one; rows]), [2.0, 2.0, 0.25, 0.25], "{rows} rows");
    }
    // Too few rows to exclude one: the range covers all of them.
    let few = [one, Factors { norm: 3.0, gain: 1.5 }];
    assert_eq!(ends(&few), [2.0, 3.0, 0.25, 0.5]);
    // Rows that equal the mean have code 0, and do not affect the range.
    let mut with_means = vec![Factors { norm: 0.0, gain: 0.0 }; 900];
    assert!(Scales::around(&with_means, 0.0, 1).is_none());
    with_means.extend([one; 100]);
    assert_eq!(ends(&with_means), [2.0, 2.0, 0.25, 0.25]);
    assert!(Scales::around(&[], 0.0, 1).is_none());
}
