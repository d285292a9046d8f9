//! Memory of a sketcher and of fitting a quantiser, counted by the allocator of this test binary.

use faer::Mat;
use frosh::{Config, Element, Method, Pool, Rows, Sketcher};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const DIM: usize = 960;
const L: usize = 256;
const BATCH: usize = 1000;
/// Limit on the memory of a sketcher in its first run, without its reservoir.
const BOUND: usize = 3 * L * DIM * 4;
/// Limit on the memory of the sketches of complete runs: three quarters of a sketch for each binary digit of their number.
const LEVEL: usize = 3 * L * DIM * 4 / 4 + (64 << 10);
/// 16,384 rows in half precision with a scale, a key, a row number and a slot each, and the spare capacity of containers.
const RESERVOIR: usize = 16_384 * (2 * DIM + 28) + (128 << 10);

/// The system allocator with counters. A reallocation counts as two blocks, since both may exist at the same time.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGE: Mutex<Large> = Mutex::new(Large { live: [(0, 0); 64], at_peak: [(0, 0); 64] });
/// Counters are for the process, so only one test runs at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Runs a test alone, on a thread of its own. What the thread keeps until it ends is freed before the next test begins.
fn alone(work: impl FnOnce() + Send + 'static) {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    if let Err(panic) = std::thread::spawn(work).join() {
        std::panic::resume_unwind(panic);
    }
}

/// Address and size of blocks of at least 16 KB, for the message of a failure.
struct Large {
    live: [(usize, usize); 64],
    at_peak: [(usize, usize); 64],
}

impl Large {
    fn replace(&mut self, address: usize, by: (usize, usize)) {
        if let Some(slot) = self.live.iter_mut().find(|(a, _)| *a == address) {
            *slot = by;
        }
    }
}

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), SeqCst) + layout.size();
        let higher = PEAK.fetch_max(live, SeqCst) < live;
        // SAFETY: the caller guarantees a valid `layout`, as the system allocator requires.
        let block = unsafe { System.alloc(layout) };
        if layout.size() >= 16 << 10 {
            let mut large = LARGE.lock().unwrap();
            large.replace(0, (block.addr(), layout.size()));
            if higher {
                large.at_peak = large.live;
            }
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), SeqCst);
        if layout.size() >= 16 << 10 {
            LARGE.lock().unwrap().replace(block.addr(), (0, 0));
        }
        // SAFETY: `block` came from `alloc` above, so from the system allocator, with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

/// The large blocks at the peak, with the number of blocks of each size.
fn blocks_at_peak() -> String {
    let mut sizes: Vec<usize> = LARGE.lock().unwrap().at_peak.iter().map(|(_, s)| *s).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let groups = sizes.chunk_by(|a, b| a == b).filter(|g| g[0] > 0);
    groups.map(|g| format!("{} x {} B", g.len(), g[0])).collect::<Vec<_>>().join(", ")
}

/// Bytes allocated since before the sketcher was created.
#[derive(Debug)]
struct Held {
    runs: u64,
    live: usize,
    peak: usize,
    reported: usize,
}

/// faer allocates a packing buffer for matrix products, of twice the last-level cache, once for each thread, and keeps it
/// until the thread ends. It does not belong to the sketcher.
fn make_packing_area() {
    let before = LIVE.load(SeqCst);
    let a = Mat::<f32>::zeros(L, L);
    drop(&a * &a);
    drop(a);
    let area = LIVE.load(SeqCst) - before;
    eprintln!("packing area of this thread, not counted: {area} B more than before");
}

/// Pushes batches from one buffer, and measures memory when the sketcher has the given row counts.
fn watch<T: Element>(config: Config, looks: &[usize], value: fn(u32) -> T) -> Vec<Held> {
    let mut batch: Vec<T> = (0..BATCH * DIM).map(|_| value(0)).collect();
    let mut held = Vec::with_capacity(looks.len());
    make_packing_area();
    LARGE.lock().unwrap().live = [(0, 0); 64];
    let before = LIVE.load(SeqCst);
    PEAK.store(before, SeqCst);
    let mut sketcher = Pool::ONE.install(|| Sketcher::new(config)).unwrap();
    for number in 1..=looks[looks.len() - 1] / BATCH {
        for (i, x) in (0u32..).zip(&mut batch) {
            // Pseudo-random values.
            let hash = (i ^ (number as u32) << 20).wrapping_mul(0x9e37_79b1);
            *x = value((hash ^ hash >> 15).wrapping_mul(0x85eb_ca77));
        }
        sketcher.push(Rows::new(&batch, DIM).unwrap()).unwrap();
        if looks.contains(&(number * BATCH)) {
            held.push(Held {
                runs: sketcher.rows().checked_div(sketcher.run_rows()).unwrap_or(0),
                live: LIVE.load(SeqCst) - before,
                peak: PEAK.load(SeqCst) - before,
                reported: sketcher.bytes(),
            });
        }
    }
    held
}

fn check(name: &str, held: &[Held], reservoir: usize) {
    let blocks = blocks_at_peak();
    for h in held {
        let levels = h.runs.checked_ilog2().map_or(0, |log| log as usize + 1);
        let most = BOUND + levels * LEVEL + reservoir;
        let share = (h.peak as f64 - reservoir as f64) / (L * DIM * 4) as f64;
        eprintln!("{name}: {h:?}, peak beside the reservoir {share:.3} l d floats");
        assert!(h.peak <= most, "{name}: {} B over; blocks: {blocks}", h.peak - most);
        let off = h.reported as f64 / h.live as f64 - 1.0;
        assert!(off.abs() <= 0.1, "{name}: bytes() is off by {off:.3}; blocks: {blocks}");
    }
    eprintln!("{name}: blocks at the peak: {blocks}");
    // Within a run, memory does not grow at all.
    let same_run = |pair: &[Held]| pair[0].runs != pair[1].runs || pair[0].peak == pair[1].peak;
    assert!(held.windows(2).all(same_run), "{name}: the peak grew: {held:?}");
}

fn single(hash: u32) -> f32 {
    (hash >> 8) as f32 - (1 << 23) as f32
}

fn byte(hash: u32) -> u8 {
    (hash >> 24) as u8
}

#[test]
fn a_sketcher_holds_at_most_three_l_d_floats_and_its_reservoir() {
    alone(|| {
        for (method, many) in
            [(Method::Frosh, 1_000_000), (Method::FroshSparse, 1_000_000), (Method::Osh, 30_000)]
        {
            let config = Config::new(DIM).sketch_rows(L).method(method);
            // The reservoir is full after 16,384 rows.
            let held = watch(config.clone(), &[20_000, many], single);
            check(method.as_str(), &held, RESERVOIR);
            let held = watch(config, &[20_000, 30_000], byte);
            check(&format!("{} of bytes", method.as_str()), &held, RESERVOIR);
        }
    });
}

#[test]
fn many_runs_hold_a_part_of_a_sketch_for_each_doubling() {
    alone(|| {
        for method in [Method::Frosh, Method::Osh] {
            let config = Config::new(DIM).sketch_rows(L).method(method).run_rows(1000);
            let held = watch(config, &[20_000, 63_000, 64_000], single);
            assert_eq!(held.iter().map(|h| h.runs).collect::<Vec<_>>(), [20, 63, 64]);
            check(&format!("{} in runs", method.as_str()), &held, RESERVOIR);
        }
    });
}

#[test]
fn one_endless_run_does_not_grow() {
    alone(|| {
        let config = Config::new(DIM).sketch_rows(L).run_rows(0);
        let held = watch(config, &[20_000, 300_000], single);
        assert_eq!(held[1].runs, 0);
        check("one run", &held, RESERVOIR);
    });
}

#[test]
fn with_a_half_life_a_sketcher_holds_no_more() {
    alone(|| {
        for method in [Method::Frosh, Method::Osh] {
            let config = Config::new(DIM).sketch_rows(L).method(method).half_life(20_000);
            let held = watch(config, &[20_000, 60_000], single);
            check(&format!("{} with a half-life", method.as_str()), &held, RESERVOIR);
        }
    });
}

#[test]
fn without_a_reservoir_a_sketcher_holds_at_most_three_l_d_floats() {
    alone(|| {
        for method in [Method::Frosh, Method::FroshSparse, Method::Osh] {
            let config = Config::new(DIM).sketch_rows(L).method(method).reservoir_rows(0);
            let held = watch(config.clone(), &[10_000, 30_000], single);
            check(&format!("{} without reservoir", method.as_str()), &held, 0);
            let held = watch(config, &[10_000, 30_000], byte);
            check(&format!("{} of bytes without reservoir", method.as_str()), &held, 0);
        }
    });
}

/// Fits quantisers to a full sample of rows of `dim` values, and measures the memory of each fit. The deviation of
/// column j is in proportion to 1 / j^power.
fn watch_quantizers(dim: usize, batches: u32, power: f32) {
    let config = Config::new(dim).for_quantizer(32);
    let mut sketcher = Pool::ONE.install(|| Sketcher::new(config)).unwrap();
    let mut batch = vec![0f32; BATCH * dim];
    for number in 0..batches {
        for (i, x) in (0u32..).zip(&mut batch) {
            let hash = (i ^ number << 20).wrapping_mul(0x9e37_79b1);
            let value = single((hash ^ hash >> 15).wrapping_mul(0x85eb_ca77));
            *x = value / ((1 + i % dim as u32) as f32).powf(power);
        }
        sketcher.push(Rows::new(&batch, dim).unwrap()).unwrap();
    }
    drop(batch);
    let sketch = sketcher.finish();
    // The first fit also allocates faer's packing buffers of this thread, see `make_packing_area`.
    drop(Pool::ONE.install(|| sketch.quantizer(8)).unwrap());
    for bytes in [8, 16, 32] {
        LARGE.lock().unwrap().live = [(0, 0); 64];
        let before = LIVE.load(SeqCst);
        PEAK.store(before, SeqCst);
        let quantizer = Pool::ONE.install(|| sketch.quantizer(bytes)).unwrap();
        let peak = PEAK.load(SeqCst) - before;
        let blocks = blocks_at_peak();
        let (sampled, k) = (sketch.reservoir_rows(), quantizer.directions());
        eprintln!(
            "quantiser of {bytes} bytes: {sampled} sampled rows, {k} directions, {peak} B at the peak; blocks: {blocks}"
        );
        assert_eq!(quantizer.bytes(), bytes);
        assert!(peak <= 64 << 20, "{bytes} bytes: {peak} B; blocks: {blocks}");
    }
}

#[test]
fn fitting_a_quantizer_adds_at_most_64_mb_to_the_sketch() {
    // The sample is full: 33,000 rows as bytes.
    alone(|| watch_quantizers(DIM, 34, 1.0));
}

#[test]
fn a_quantizer_of_shorter_and_more_rows_takes_no_more_memory() {
    // The sample has as many rows as it can have with 128 directions.
    alone(|| watch_quantizers(240, 66, 1.0));
}

#[test]
fn a_quantizer_of_twice_the_directions_takes_no_more_memory() {
    // Where all columns vary alike, there are 256 directions at 16 and 32 bytes.
    alone(|| watch_quantizers(DIM, 34, 0.0));
}

#[test]
fn a_quantizer_of_twice_the_directions_and_more_rows_takes_no_more_memory() {
    // At 32 bytes, not all rows fit even as bytes.
    alone(|| watch_quantizers(480, 66, 0.0));
}
