//! Made-up records of full shape, for tests of claims and of the page. Their numbers are plausible, not measured.

use crate::results::{Machine, Record, Results, Run};

const SETS: [(&str, u64, u64, f64); 4] = [
    ("cifar10-gist", 59_000, 512, 0.22),
    ("mnist", 69_000, 784, 0.38),
    ("gist1m-stand-in", 200_000, 960, 0.15),
    ("flickr25600-stand-in", 20_000, 25_600, 0.12),
];

/// (method, MAP relative to the set's level, seconds relative to FROSH)
const METHODS: [(&str, f64, f64); 9] = [
    ("LSH", 0.62, 0.4),
    ("OSH", 1.0, 8.0),
    ("FROSH", 0.985, 1.0),
    ("DFROSH", 0.98, 0.22),
    ("SGH", 1.05, 11.0),
    ("OCH-style", 1.12, 31.0),
    ("PCA", 0.55, 3.0),
    ("PCA-RR", 1.01, 3.1),
    ("PCA-ITQ", 1.2, 6.5),
];

/// A repeatable number between -1 and 1.
fn noise(seed: u64) -> f64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678;
    for _ in 0..3 {
        x ^= x >> 29;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// Every experiment, three repeats.
pub(crate) fn full() -> Results {
    let mut records = sketches();
    records.extend(streams());
    for (s, (data, rows, dim, level)) in SETS.into_iter().enumerate() {
        for (m, (method, quality, time)) in METHODS.into_iter().enumerate() {
            for bits in [32u32, 64, 128] {
                let reach = level * quality * (f64::from(bits) / 32.0).powf(0.45);
                for repeat in 0..3u32 {
                    let seed =
                        (s * 1000 + m * 100) as u64 + u64::from(bits) * 7 + u64::from(repeat);
                    let base = Record {
                        data: data.into(),
                        method: method.into(),
                        rows,
                        dim,
                        bits: Some(bits),
                        repeat,
                        ..Record::default()
                    };
                    let of =
                        |experiment: &str| Record { experiment: experiment.into(), ..base.clone() };
                    let map = (reach * (1.0 + 0.02 * noise(seed))).min(0.98);
                    records.push(Record { map: Some(map), ..of("bits") });
                    let frosh = rows as f64 * dim as f64 * (1.0 + f64::from(bits) / 64.0) * 4e-10;
                    let seconds = frosh * time * (1.0 + 0.05 * noise(seed + 1));
                    records.push(Record { seconds: Some(seconds), ..of("train-time") });
                    if ["OSH", "FROSH", "DFROSH"].contains(&method) {
                        let seconds = Some(seconds + 0.2);
                        records.push(Record { seconds, ..of("whole-training") });
                    }
                    if bits == 128 {
                        records
                            .push(Record { returned: Some(curve(map)), ..of("precision-recall") });
                    }
                    if m < 3 {
                        for round in 1..=10u32 {
                            let grown =
                                if m == 0 { 1.0 } else { 1.0 - 0.12 / f64::from(round).powf(1.3) };
                            let wobble = 1.0 + 0.01 * noise(seed + 17 * u64::from(round));
                            let rows = rows * u64::from(round) / 10;
                            let map = Some(map * grown * wobble);
                            records.push(Record { map, round: Some(round), rows, ..of("rounds") });
                        }
                    }
                }
            }
        }
    }
    let machine = Machine {
        cpu: "Example CPU @ 2.90GHz".into(),
        cores: 2,
        memory: 16 << 30,
        system: "Linux".into(),
    };
    let run = Run {
        command: "frosh paper --out results".into(),
        version: "0.1.0".into(),
        repeats: 3,
        queries: 1000,
        seconds: 4321.0,
        machine,
        ..Run::default()
    };
    Results { run, records }
}

/// Two streams, every method, three repeats.
fn streams() -> Vec<Record> {
    let methods = [
        ("frozen", 0.8),
        ("encode all", 0.98),
        ("mixed", 0.3),
        ("versions", 1.0),
        ("when due", 0.99),
    ];
    let mut records = Vec::new();
    for (data, level) in [("mnist by class", 0.8), ("glove in file order", 0.6)] {
        for (method, quality) in methods {
            for repeat in 0..3u32 {
                records.push(Record {
                    experiment: "streams".into(),
                    data: data.into(),
                    method: method.into(),
                    rows: 60_000,
                    dim: 100,
                    bits: Some(64),
                    repeat,
                    map: Some(level * quality * (1.0 + 0.02 * noise(u64::from(repeat)))),
                    map_error: Some(0.01),
                    recall: Some(0.4),
                    encoded: Some(1.9),
                    versions: Some(if quality > 0.98 { 10 } else { 1 }),
                    ..Record::default()
                });
            }
        }
    }
    records
}

/// A curve with about a given area.
fn curve(area: f64) -> Vec<[f64; 3]> {
    let bend = (1.0 / area.clamp(0.02, 0.98) - 1.0).max(0.05);
    (0..=60)
        .map(|i| f64::from(i) / 60.0)
        .map(|r| [1.0 + 999.0 * r, r, (1.0 - r.powf(1.0 / bend) * 0.98).max(0.02)])
        .collect()
}

fn sketches() -> Vec<Record> {
    let mut places: Vec<(&str, u64, u64, u64)> = Vec::new();
    places.extend([16, 32, 64, 100, 128, 200, 256].map(|l| ("l", l, 100_000, 512)));
    places.extend([50_000, 100_000, 200_000, 500_000, 1_000_000].map(|n| ("n", 64, n, 512)));
    places.extend([64, 128, 256, 512].map(|d| ("d", 64, 100_000, d)));
    let mut records = Vec::new();
    for (i, (sweep, l, n, d)) in places.into_iter().enumerate() {
        for tau in [None, Some(1), Some(2), Some(4), Some(8)] {
            for repeat in 0..3u32 {
                let seed = i as u64 * 100 + u64::from(tau.unwrap_or(0)) * 10 + u64::from(repeat);
                let (lf, nf, df) = (l as f64, n as f64, d as f64);
                let fd = 0.2 / lf * (df / 512.0).powf(0.3) * (1e5 / nf).powf(0.05);
                let m = f64::from(tau.unwrap_or(0)) * df;
                let error = fd + 0.3 * (m / (nf * lf / 2.0)).sqrt();
                let seconds = match tau {
                    None => nf * df * lf * 2.5e-10,
                    Some(_) => nf * df * (6e-10 + 1.5e-11 * lf * lf / m * 8.0),
                };
                records.push(Record {
                    experiment: "sketch".into(),
                    data: "synthetic".into(),
                    method: if tau.is_none() { "FD" } else { "FFD" }.into(),
                    sweep: Some(sweep.into()),
                    rows: n,
                    dim: d,
                    sketch_rows: Some(l),
                    block_rows: tau.map(|t| u64::from(t) * d),
                    tau,
                    repeat,
                    relative_error: Some(error * (1.0 + 0.04 * noise(seed))),
                    seconds: Some(seconds * (1.0 + 0.03 * noise(seed + 5))),
                    ..Record::default()
                });
            }
        }
    }
    records
}

/// Says that a test could not be done, and why, past the capture of output; `.ci/run` counts these lines.
pub(crate) fn skipped(why: &str) {
    use std::io::Write as _;
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {why}", thread.name().unwrap_or("a test"));
}
