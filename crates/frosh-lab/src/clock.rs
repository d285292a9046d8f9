//! The clock of the experiments: the processor's time of the whole process.
//!
//! Everything that is timed runs on one thread, if not always on the calling one, and nothing runs beside it; so this is
//! its time on an idle machine. On a busy one, what other programs take is not counted (what they push out of caches
//! is). Where the system does not tell it, it is the time that passes.

/// Seconds that some work took, and its result.
pub(crate) fn timed<R>(work: impl FnOnce() -> R) -> (f64, R) {
    let start = now();
    let result = work();
    ((now() - start).max(0.0), result)
}

#[cfg(unix)]
fn now() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(not(unix))]
fn now() -> f64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time_and_its_result_is_handed_on() {
        let sum = |n: u64| (0..n).fold(0u64, |sum, i| sum.wrapping_mul(31).wrapping_add(i));
        let (seconds, result) =
            timed(|| std::hint::black_box(sum(std::hint::black_box(5_000_000))));
        assert!(seconds > 0.0 && result == sum(5_000_000));
    }
}
