use super::beam::{Beam, MAX_BEAM};
use super::codebooks::{CELLS, Codebooks, Products, WORDS};
use super::rounded::Buffers;
use super::stored_rows::FloatRows;
use super::train::{self, Schedule};
use super::*;
use crate::random::{Purpose, Stream};
use crate::search::ranking::ORDER_QUERIES;
use crate::{
    Codes, Config, Error, Hit, IdSet, Method, Metric, Pool, Ranking, Rows, Search, Sketch, Sketcher,
};
use std::collections::BTreeMap;
use std::sync::Mutex;

const DIM: usize = 20;

fn normal(n: usize, seed: u64) -> Vec<f32> {
    let mut stream = Stream::new(seed, Purpose::Sample, 9, 0);
    (0..n).map(|_| stream.normal() as f32).collect()
}

/// Rows around centres, with columns of decreasing variance and a mean.
fn data(n: usize, seed: u64) -> Vec<f32> {
    let (centres, noise) = (normal(40 * DIM, 1), normal(n * DIM, seed));
    let value = |i: usize| {
        let (row, k) = (i / DIM, i % DIM);
        3.0 + (centres[row * 7 % 40 * DIM + k] + 0.4 * noise[i]) / (1.0 + k as f32).sqrt()
    };
    (0..n * DIM).map(value).collect()
}

fn rows(data: &[f32]) -> Rows<'_, f32> {
    Rows::new(data, DIM).unwrap()
}

fn sketch(config: Config, data: &[f32]) -> Sketch {
    let mut sketcher = Sketcher::new(config).unwrap();
    sketcher.push(rows(data)).unwrap();
    sketcher.finish()
}

/// A model of so many bytes, and the rows that it was fitted to. Tests share the models, since fits take time.
fn quantizer(bytes: usize) -> (Quantizer, Vec<f32>) {
    static MODELS: Mutex<BTreeMap<usize, Quantizer>> = Mutex::new(BTreeMap::new());
    let (mut models, data) = (MODELS.lock().unwrap(), data(6000, 2));
    let fit = || sketch(Config::new(DIM).sketch_rows(40), &data).quantizer(bytes).unwrap();
    (models.entry(bytes).or_insert_with(fit).clone(), data)
}

/// Scores by the definition on the module page, in double precision.
fn definition(quantizer: &Quantizer, codes: &Codes, query: &[f32]) -> Vec<f64> {
    let centred: Vec<f64> =
        query.iter().zip(quantizer.mean()).map(|(x, m)| f64::from(*x) - m).collect();
    let k = quantizer.directions();
    let v: Vec<f64> = (0..k)
        .map(|j| {
            let w = &quantizer.directions[j * DIM..][..DIM];
            let scale = f64::from(quantizer.scales[j]);
            w.iter().zip(&centred).map(|(w, x)| f64::from(*w) * x).sum::<f64>() / scale
        })
        .collect();
    let norm: f64 = centred.iter().map(|x| x * x).sum();
    let mut decoded = vec![0f32; k];
    (0..codes.len())
        .map(|i| {
            let (code, level) = codes.row(i).split_at(codes.bytes_per_row() - 1);
            quantizer.books.decode(code, &mut decoded);
            let product: f64 =
                (0..k).map(|j| v[j] * f64::from(decoded[j]) / f64::from(quantizer.scales[j])).sum();
            let level = quantizer.scalar.levels[usize::from(level[0])];
            let tau = quantizer.scalar.predict(code) + level;
            norm + f64::from(tau) - 2.0 * product
        })
        .collect()
}

#[test]
fn a_wide_beam_finds_the_best_code_of_two_cells_and_one_codebook() {
    let (k, n) = (6, 200);
    let mut books = Codebooks::new(k, 1, 1, 2);
    books.cells = normal(2 * k, 3);
    books.words = normal(WORDS * k, 4);
    let (tables, data) = (books.tables(&Pool::current()), normal(n * k, 5));
    let mut beam = Beam::new(&books, MAX_BEAM);
    let mut products = vec![0f32; n * books.entries()];
    Products::new(&books).of(crate::arch::Isa::detect(), &data, &mut products);
    let mut decoded = vec![0f32; k];
    let mut error = |row: &[f32], code: &[u8]| {
        books.decode(code, &mut decoded);
        row.iter().zip(&decoded).map(|(x, y)| (x - y) * (x - y)).sum::<f32>()
    };
    for (row, products) in data.chunks_exact(k).zip(products.chunks_exact(books.entries())) {
        let mut code = [0u8; 2];
        beam.encode(crate::arch::Isa::detect(), &books, &tables, products, &mut code);
        let all = (0..2u8).flat_map(|a| (0..=255u8).map(move |b| [a, b]));
        let best = all.map(|code| error(row, &code)).fold(f32::INFINITY, f32::min);
        assert!(error(row, &code) <= best + 1e-4);
    }
}

/// The cells are far from zero, and the words short: the errors of products are those of short rows.
#[test]
fn products_by_bytes_are_near_the_exact_ones() {
    let (k, n) = (40, 300);
    let mut books = Codebooks::new(k, 4, 2, 256);
    books.cells = normal(256 * k, 3).iter().map(|x| 10.0 * x).collect();
    books.words = normal(books.words.len(), 4);
    let tables = books.tables(&Pool::current());
    let noise = normal(n * k, 5);
    let row = |(i, noise): (usize, &[f32])| -> Vec<f32> {
        let cell = &books.cells[i % 256 * k..][..k];
        cell.iter().zip(noise).map(|(c, x)| c + x).collect()
    };
    let data: Vec<f32> = noise.chunks_exact(k).enumerate().flat_map(row).collect();
    let mut exact = vec![0f32; n * books.entries()];
    let mut rounded = exact.clone();
    Products::new(&books).of(crate::arch::Isa::detect(), &data, &mut exact);
    let isa = crate::arch::Isa::detect();
    tables.rounded_products(isa, &books, &data, &mut Buffers::default(), &mut rounded);
    let (mut error, mut count) = (0f64, 0);
    for (exact, rounded) in
        exact.chunks_exact(books.entries()).zip(rounded.chunks_exact(books.entries()))
    {
        for (x, y) in exact[256..].iter().zip(&rounded[256..]) {
            error += f64::from(x - y).powi(2);
            count += 1;
        }
    }
    // Twenty coordinates of deviation 1, the largest of which is at most 4: steps of 4/127 and 4/63 with the variance
    // 1/12. Were the cells not taken off, steps would be ten times as large.
    let expected = 20.0 / 12.0 * ((4.0f64 / 127.0).powi(2) + (4.0f64 / 63.0).powi(2));
    assert!(error / f64::from(count) < expected, "{} {expected}", error / f64::from(count));
}

#[test]
fn products_between_words_are_rounded_to_steps_of_their_scale() {
    let (k, own) = (30, 0..3);
    let mut books = Codebooks::new(k, 3, 1, 256);
    books.words = normal(books.words.len(), 6);
    // The last codebook has long words, and so products of another scale.
    books.words[2 * WORDS * k..].iter_mut().for_each(|x| *x *= 50.0);
    let word = |book: usize, i: usize| &books.words[(book * WORDS + i) * k..][..k];
    for threads in [1, 3] {
        let pairs = books.tables(&Pool::new(threads).unwrap()).pairs;
        let mut cut = 0;
        for (book, other) in [(0, 1), (0, 2), (1, 2)] {
            let scale = pairs.scale(other);
            for i in 0..WORDS {
                for (j, byte) in pairs.of(book, i as u8, other, &own).iter().enumerate() {
                    let product: f32 =
                        word(book, i).iter().zip(word(other, j)).map(|(x, y)| x * y).sum();
                    let away = (product - scale * f32::from(*byte)).abs();
                    match byte.unsigned_abs() {
                        127 => cut += 1,
                        _ => assert!(away <= 0.501 * scale, "{product} {byte} {scale}"),
                    }
                }
            }
        }
        // The scale is that of the largest of one product in eight, and a quarter more.
        assert!(cut < 10, "{cut}");
    }
}

#[test]
fn wider_beams_leave_less_error() {
    let (k, n) = (24, 2000);
    let data = normal(n * k, 6);
    let stream = &mut Stream::new(1, Purpose::Codebooks, 0, 0);
    let mut books = train::begin(&Pool::ONE, &FloatRows { k, values: &data }, k, 4, 2, stream);
    let schedule = Schedule { rounds: 3, beam: 2, momentum: 0.0 };
    train::improve(&Pool::ONE, &mut books, &FloatRows { k, values: &data }, schedule);
    assert_eq!(books.segments.len(), 2);
    let error = |beam| {
        let codes = train::encode(&Pool::ONE, &books, &FloatRows { k, values: &data }, beam);
        let mut decoded = vec![0f32; k];
        let of = |(row, code): (&[f32], &[u8])| {
            books.decode(code, &mut decoded);
            row.iter().zip(&decoded).map(|(x, y)| f64::from(x - y).powi(2)).sum::<f64>()
        };
        data.chunks_exact(k).zip(codes.chunks_exact(5)).map(of).sum::<f64>()
    };
    let (greedy, narrow, wide) = (error(1), error(4), error(16));
    assert!(wide < narrow && narrow < greedy, "{greedy} {narrow} {wide}");
}

/// The mean squared errors of a code of 4 bytes, which was fitted with this schedule: of the rows that it was fitted
/// to, and of others.
fn errors_of_training(schedule: Schedule) -> [f64; 2] {
    let (k, n) = (16, 6000);
    let (data, other) = (normal(n * k, 7), normal(n * k, 8));
    let stream = &mut Stream::new(1, Purpose::Codebooks, 0, 0);
    let mut books = train::begin(&Pool::ONE, &FloatRows { k, values: &data }, k, 3, 1, stream);
    train::improve(&Pool::ONE, &mut books, &FloatRows { k, values: &data }, schedule);
    [data, other].map(|values| {
        let codes = train::encode(&Pool::ONE, &books, &FloatRows { k, values: &values }, 8);
        let mut decoded = vec![0f32; k];
        let of = |(row, code): (&[f32], &[u8])| {
            books.decode(code, &mut decoded);
            row.iter().zip(&decoded).map(|(x, y)| f64::from(x - y).powi(2)).sum::<f64>()
        };
        values.chunks_exact(k).zip(codes.chunks_exact(4)).map(of).sum::<f64>() / (n * k) as f64
    })
}

#[test]
fn rounds_of_training_lower_the_error() {
    let error = |rounds| errors_of_training(Schedule { rounds, beam: 2, momentum: 0.0 })[1];
    let (none, some) = (error(0), error(6));
    assert!(some < 0.99 * none, "{none} to {some}");
    // The rate-distortion bound of 16 independent normal coordinates with 32 bits is 2^(-2 * 32 / 16). No code is better on
    // rows that it was not fitted to, and a good one is within a factor of 2.
    assert!(some > 1.0 / 16.0 && some < 2.0 / 16.0, "{some}");
}

/// Ten rounds with momentum reach what fifteen without reach. A momentum that is too large is given up.
#[test]
fn momentum_saves_rounds() {
    let error = |rounds, momentum| errors_of_training(Schedule { rounds, beam: 2, momentum })[0];
    let (short, long) = (error(10, 0.0), error(15, 0.0));
    let (fast, wild) = (error(10, 0.75), error(10, 3.0));
    assert!(long < short && fast < long, "{short} {long} {fast}");
    assert!(wild < 1.1 * short, "{short} {wild}");
}

/// The mean squared error of the scaled projections of rows that are decoded.
fn error_of_codes(quantizer: &Quantizer, data: &[f32]) -> f64 {
    let codes = quantizer.encode(rows(data)).unwrap();
    let mut decoded = vec![0f32; quantizer.directions()];
    let (mut sum, width) = (0.0, quantizer.bytes());
    for (row, code) in data.chunks_exact(DIM).zip(codes.as_bytes().chunks_exact(width)) {
        quantizer.books.decode(&code[..width - 1], &mut decoded);
        for (decoded, w) in decoded.iter().zip(quantizer.directions.chunks_exact(DIM)) {
            let centred = row.iter().zip(quantizer.mean()).map(|(x, mean)| f64::from(*x) - mean);
            let z: f64 = centred.zip(w).map(|(x, w)| x * f64::from(*w)).sum();
            sum += (z - f64::from(*decoded)).powi(2);
        }
    }
    sum / (data.len() / DIM) as f64
}

#[test]
fn codebooks_of_more_sampled_rows_describe_other_rows_better() {
    // Without clusters, which a few rows would describe as well.
    let (learned, other) = (normal(48_000 * DIM, 21), normal(4000 * DIM, 22));
    let error = |sampled: usize| {
        let quantizer =
            sketch(Config::new(DIM).reservoir_rows(sampled), &learned).quantizer(10).unwrap();
        error_of_codes(&quantizer, &other)
    };
    let (few, many) = (error(16_384), error(48_000));
    // Nine words of a row have a leverage of 9 * 256 / n: .14 and .05. Rows choose other words, which takes part of the
    // gain.
    assert!(many < 0.98 * few, "{few} and {many}");
}

#[test]
fn distances_are_those_of_the_definition() {
    for bytes in [4, 8, 19] {
        let (quantizer, data) = quantizer(bytes);
        let codes = quantizer.encode(rows(&data[..500 * DIM])).unwrap();
        assert_eq!((codes.bytes_per_row(), codes.len()), (bytes, 500));
        let queries = quantizer.queries(rows(&data[..3 * DIM])).unwrap();
        let hits = codes.search(&queries, &Search::nearest(500)).unwrap();
        for (query, hits) in data.chunks_exact(DIM).zip(&hits) {
            let want = definition(&quantizer, &codes, query);
            let largest = want.iter().fold(0f64, |m, x| m.max(x.abs()));
            assert_eq!(hits.len(), 500);
            for hit in hits {
                let want = want[hit.id as usize];
                assert!((hit.distance - want).abs() < 1e-5 * largest, "{} {want}", hit.distance);
            }
        }
    }
}

#[test]
fn estimates_are_near_the_true_distances() {
    let (quantizer, data) = quantizer(16);
    let codes = quantizer.encode(rows(&data)).unwrap();
    let queries = quantizer.queries(rows(&data[..20 * DIM])).unwrap();
    let hits = codes.search(&queries, &Search::nearest(10)).unwrap();
    let found = hits.iter().enumerate().filter(|(i, hits)| hits.iter().any(|h| h.id == *i as u64));
    assert!(found.count() >= 19, "a row is among its own nearest neighbours");
}

/// Hits by scoring every row.
fn all_scored(
    quantizer: &Quantizer,
    codes: &Codes,
    data: &[f32],
    search: &Search<'_>,
) -> Vec<Vec<Hit>> {
    let queries = quantizer.queries(rows(data)).unwrap();
    (0..queries.len())
        .map(|q| {
            let mut all = Vec::new();
            codes.scores(&queries, q, Ranking::Estimated, 0..codes.len(), |first, scores| {
                let hit = |(id, score): (u64, &f32)| Hit { id, distance: (*score).into() };
                all.extend((first as u64..).zip(scores).map(hit));
            });
            all.retain(|hit| search.filter.is_none_or(|set| set.contains(hit.id)));
            all.sort();
            all.truncate(search.k);
            all
        })
        .collect()
}

#[test]
fn pruned_search_returns_the_hits_of_scoring_every_row() {
    for bytes in [4, 8, 16] {
        let (quantizer, mut data) = quantizer(bytes);
        // Equal rows, so that scores are tied.
        let copies = data[..500 * DIM].to_vec();
        data.extend_from_slice(&copies);
        let codes = quantizer.encode(rows(&data)).unwrap();
        let some: IdSet = (0..6500).filter(|i| i % 3 == 0).collect();
        let few: IdSet = (0..6500).step_by(1000).collect();
        let asked = &data[100 * DIM..170 * DIM];
        let queries = quantizer.queries(rows(asked)).unwrap();
        for k in [0, 1, 10, 300] {
            for filter in [None, Some(&some), Some(&few)] {
                let mut search = Search::nearest(k);
                search.filter = filter;
                let want = all_scored(&quantizer, &codes, asked, &search);
                for threads in [1, 2] {
                    let pool = Pool::new(threads).unwrap();
                    let got = pool.install(|| codes.search(&queries, &search)).unwrap();
                    assert!(got == want, "{bytes} bytes, k = {k}, {threads} threads");
                    let one = quantizer.queries(rows(&asked[..DIM])).unwrap();
                    let got = pool.install(|| codes.search(&one, &search)).unwrap();
                    assert!(got[..] == want[..1], "one query, {bytes} bytes, k = {k}");
                }
            }
        }
    }
}

/// Rows around 40 far centres.
fn clustered(n: usize) -> Vec<f32> {
    let (centres, noise) = (normal(40 * DIM, 11), normal(n * DIM, 12));
    let centre = |i: usize| centres[i / DIM * 7 % 40 * DIM + i % DIM];
    (0..n * DIM).map(|i| 8.0 * centre(i) + 0.3 * noise[i]).collect()
}

#[test]
fn skipped_runs_of_clustered_rows_change_no_hits() {
    let data = clustered(9000);
    let quantizer = sketch(Config::new(DIM), &data).quantizer(8).unwrap();
    let codes = quantizer.encode(rows(&data)).unwrap();
    // Rows, points between clusters, and points far outside.
    let mut asked = data[..30 * DIM].to_vec();
    asked.extend((0..30 * DIM).map(|i| (data[i] + data[i + DIM]) / 2.0));
    asked.extend((0..10 * DIM).map(|i| 20.0 * data[i]));
    let queries = quantizer.queries(rows(&asked)).unwrap();
    for k in [1, 10, 200] {
        let search = Search::nearest(k);
        let want = all_scored(&quantizer, &codes, &asked, &search);
        for threads in [1, 2] {
            let pool = Pool::new(threads).unwrap();
            assert!(pool.install(|| codes.search(&queries, &search)).unwrap() == want, "k = {k}");
        }
    }
}

#[test]
fn threads_that_share_the_cells_of_a_query_find_the_same() {
    // Random codes: no cell can be skipped, and there are enough of them to be shared.
    let (quantizer, data) = quantizer(8);
    let n = 700_000;
    let mut stream = Stream::new(4, Purpose::Sample, 9, 0);
    let bytes: Vec<u8> = (0..n).flat_map(|_| stream.below(u64::MAX).to_le_bytes()).collect();
    let codes = Codes::of_quantizer(8, quantizer.id(), bytes);
    let few: IdSet = (0..n).step_by(99_000).collect();
    let asked = &data[..2 * DIM];
    // Fewer queries than these would score every row.
    let many = quantizer.queries(rows(&data[..ORDER_QUERIES * DIM])).unwrap();
    let first = codes.nearest(&many, 1).unwrap();
    assert!(first[..2] == all_scored(&quantizer, &codes, asked, &Search::nearest(1)));
    for (k, filter) in [(1, None), (10, None), (10, Some(&few))] {
        let mut search = Search::nearest(k);
        search.filter = filter;
        let want = all_scored(&quantizer, &codes, asked, &search);
        for (threads, count) in [(1, 2), (2, 1), (3, 2), (5, 1)] {
            let queries = quantizer.queries(rows(&asked[..count * DIM])).unwrap();
            let pool = Pool::new(threads).unwrap();
            let got = pool.install(|| codes.search(&queries, &search)).unwrap();
            assert!(got == want[..count], "k = {k}, {threads} threads, {count} queries");
        }
    }
}

/// The first few queries score every row, and the others search by cell: the hits are the same.
#[test]
fn hits_do_not_depend_on_how_many_queries_were_asked_before() {
    let (quantizer, data) = quantizer(8);
    let codes = quantizer.encode(rows(&data)).unwrap();
    let one = quantizer.queries(rows(&data[..DIM])).unwrap();
    let (all, few) = (Search::nearest(15), Search::nearest(15).probe(2));
    let want = all_scored(&quantizer, &codes, &data[..DIM], &all);
    // A search by probes needs the order, so that it finds the same at any time.
    let early = quantizer.encode(rows(&data)).unwrap().search(&one, &few).unwrap();
    for _ in 0..ORDER_QUERIES + 2 {
        assert!(codes.search(&one, &all).unwrap() == want);
    }
    assert!(codes.search(&one, &few).unwrap() == early);
}

#[test]
fn probing_searches_the_best_cells_only() {
    let (quantizer, data) = quantizer(8);
    let codes = quantizer.encode(rows(&data)).unwrap();
    let asked = &data[..20 * DIM];
    let queries = quantizer.queries(rows(asked)).unwrap();
    let all = codes.nearest(&queries, 20).unwrap();
    let probe = |cells| codes.search(&queries, &Search::nearest(20).probe(cells));
    assert_eq!(probe(256).unwrap(), all);
    // The cells of a query in the order of what they add to the distance, of those that have rows.
    let cell = |id: u64| codes.as_bytes()[id as usize * 8];
    let used: std::collections::BTreeSet<u8> = (0..6000).map(cell).collect();
    for cells in [1, 3, 40] {
        let found = probe(cells).unwrap();
        for (query, hits) in asked.chunks_exact(DIM).zip(&found) {
            let entries = quantizer.queries(rows(query)).unwrap().cell_entries();
            let mut best: Vec<u8> = used.iter().copied().collect();
            best.sort_by(|a, b| entries[*a as usize].total_cmp(&entries[*b as usize]));
            let best = &best[..cells.min(best.len())];
            // All hits are of these cells, and no row of them is missing.
            let ids: IdSet = (0..6000).filter(|id| best.contains(&cell(*id))).collect();
            let one = quantizer.queries(rows(query)).unwrap();
            let want = codes.search(&one, &Search::nearest(20).filter(&ids)).unwrap();
            assert_eq!(*hits, want[0], "{cells} cells");
        }
    }
    assert!(probe(0).is_err());
    let hasher = sketch(Config::new(DIM), &data).hasher(16).unwrap();
    let bits = hasher.encode(rows(&data)).unwrap();
    let why = bits.search(&bits, &Search::nearest(1).probe(3)).unwrap_err().to_string();
    assert!(why.contains("no cells"), "{why}");
}

#[test]
fn the_model_and_codes_do_not_depend_on_threads_or_batches() {
    let data = data(3000, 8);
    let sketch = sketch(Config::new(DIM), &data);
    let [a, b] = [1, 3].map(|threads| {
        let pool = Pool::new(threads).unwrap();
        pool.install(|| {
            let model = sketch.quantizer(8).unwrap();
            let codes = model.encode(rows(&data)).unwrap();
            (model.to_bytes(), codes)
        })
    });
    assert!(a == b);
    let model = Quantizer::from_bytes(&a.0).unwrap();
    let mut parts = model.encode(rows(&data[..DIM])).unwrap();
    parts.append(&model.encode(rows(&data[DIM..1000 * DIM])).unwrap()).unwrap();
    parts.append(&model.encode(rows(&data[1000 * DIM..])).unwrap()).unwrap();
    assert_eq!(parts, a.1);
}

#[test]
fn a_file_keeps_the_model_and_damage_is_noticed() {
    let (quantizer, data) = quantizer(8);
    let bytes = quantizer.to_bytes();
    let again = Quantizer::from_bytes(&bytes).unwrap();
    assert_eq!((again.id(), again.choice()), (quantizer.id(), quantizer.choice()));
    assert_eq!(again.to_bytes(), bytes);
    let either = crate::Model::from_bytes(&bytes).unwrap();
    assert!(matches!(&either, crate::Model::Quantizer(_)) && either.to_bytes() == bytes);
    let codes = quantizer.encode(rows(&data)).unwrap();
    assert_eq!(again.encode(rows(&data)).unwrap(), codes);
    assert_eq!(either.codes_from_packed(codes.as_bytes().to_vec()).unwrap(), codes);
    assert!(either.codes_from_packed(vec![0; 9]).is_err());
    let stored = Codes::from_bytes(&codes.to_bytes()).unwrap();
    assert!(stored == codes && stored.is_quantized());
    for at in (0..bytes.len()).step_by(bytes.len() / 97 + 1) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(Quantizer::from_bytes(&damaged).is_err(), "byte {at}");
        assert!(Quantizer::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn a_merged_sketch_gives_a_model_that_finds_as_much() {
    let data = data(9000, 10);
    let whole = sketch(Config::new(DIM).sketch_rows(40), &data);
    let parts: Vec<Sketch> = data
        .chunks(DIM * 1800)
        .enumerate()
        .map(|(worker, part)| sketch(Config::new(DIM).sketch_rows(40).worker(worker as u64), part))
        .collect();
    let merged = Sketch::merge(&parts).unwrap();
    let recall = |sketch: &Sketch| {
        let model = sketch.quantizer(8).unwrap();
        (model.forecast().unwrap().recall, model.forecast().unwrap().standard_error)
    };
    let ((one, error), (five, other)) = (recall(&whole), recall(&merged));
    // Workers sample other rows, so that the held-out queries are independent: the variances add up.
    assert!((one - five).abs() < 4.0 * error.hypot(other), "{one} and {five}");
}

#[test]
fn impossible_requests_are_refused() {
    let data = data(1500, 11);
    let sketch_of = |config| sketch(config, &data);
    let fine = sketch_of(Config::new(DIM));
    for bytes in [0, 3, 65, usize::MAX] {
        let said = fine.quantizer(bytes).unwrap_err().to_string();
        assert!(said.starts_with(&format!("bytes = {bytes} ")), "{said}");
    }
    let said = sketch_of(Config::new(DIM).reservoir_rows(100)).quantizer(8).unwrap_err();
    assert!(said.to_string().contains("1024"), "{said}");
    assert!(Config::new(DIM).reservoir_rows(100).check_quantizer(8).is_err());
    assert!(Config::new(DIM).check_quantizer(8).is_ok());
    assert!(sketch_of(Config::new(DIM).method(Method::Lsh)).quantizer(8).is_err());
    let model = fine.quantizer(8).unwrap();
    let other = Rows::new(&data[..21], 21).unwrap();
    assert!(matches!(model.encode(other), Err(Error::Dimension { expected: DIM, got: 21 })));
    assert!(matches!(model.queries(other), Err(Error::Dimension { .. })));
    let mut bad = data[..1000 * DIM].to_vec();
    bad[777 * DIM + 3] = f32::NAN;
    let said = model.encode(rows(&bad)).unwrap_err();
    assert!(matches!(said, Error::NotFinite { row: 777, .. }), "{said:?}");
}

#[test]
fn hamming_distances_of_a_quantisers_codes_are_refused() {
    let (quantizer, data) = quantizer(8);
    let codes = quantizer.encode(rows(&data[..100 * DIM])).unwrap();
    let queries = quantizer.queries(rows(&data[..DIM])).unwrap();
    assert!(matches!(codes.nearest(&codes, 3), Err(Error::Ranking { .. })));
    assert!(matches!(codes.distance(0, &codes, 1), Err(Error::Ranking { .. })));
    assert!(crate::MultiIndex::new(&codes).is_err());
    for ranking in [Ranking::Hamming, Ranking::Asymmetric] {
        let refused = codes.search(&queries, &Search::nearest(3).ranking(ranking));
        assert!(matches!(refused, Err(Error::Ranking { .. })), "{ranking}");
    }
    assert!(matches!(codes.search(&queries, &Search::within(3)), Err(Error::Ranking { .. })));
}

#[test]
fn data_of_low_rank_or_without_variance_gives_a_model() {
    for kind in 0..3 {
        let mut data = data(1500, 12);
        for (i, row) in data.chunks_exact_mut(DIM).enumerate() {
            match kind {
                0 => row.fill(1.5),
                1 => row[2..].fill(0.0),
                _ => row.fill((i % 3) as f32),
            }
        }
        for metric in [Metric::L2, Metric::Cosine] {
            let model = sketch(Config::new(DIM).metric(metric), &data).quantizer(6).unwrap();
            let codes = model.encode(rows(&data)).unwrap();
            let queries = model.queries(rows(&data[..2 * DIM])).unwrap();
            let hits = codes.nearest(&queries, 5).unwrap();
            assert!(hits.iter().flatten().all(|hit| hit.distance.is_finite()), "{kind} {metric}");
            assert!(Quantizer::from_bytes(&model.to_bytes()).is_ok(), "{kind} {metric}");
        }
    }
}

#[test]
fn entries_are_counted_as_the_file_has_them() {
    let (quantizer, _) = quantizer(8);
    assert_eq!(quantizer.scalar.prediction.len(), CELLS + WORDS * quantizer.books.books);
    assert_eq!(quantizer.books.entries(), quantizer.scalar.prediction.len());
}
