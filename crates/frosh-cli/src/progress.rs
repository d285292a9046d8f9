//! A progress bar on standard error: rows, rows/s, MB/s, time left. Only on a terminal, and only for what
//! takes longer than a second.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// Before this, nothing is shown.
const PATIENCE: Duration = Duration::from_secs(1);

/// Shows how far a job is.
pub(crate) struct Progress {
    bar: ProgressBar,
    start: Instant,
    wanted: bool,
    bytes_per_row: usize,
    rows: u64,
}

impl Progress {
    /// A bar for `what`, over `rows` rows where they are known.
    pub(crate) fn new(what: &str, rows: Option<u64>, bytes_per_row: usize, quiet: bool) -> Self {
        let bar = rows.map_or_else(ProgressBar::no_length, ProgressBar::new);
        bar.set_draw_target(ProgressDrawTarget::hidden());
        let template = if rows.is_some() {
            "{prefix} {wide_bar:.cyan/dim} {percent:>3}%  {msg}  {eta} left"
        } else {
            "{prefix} {spinner} {msg}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸─"));
        }
        bar.set_prefix(what.to_owned());
        let wanted = !quiet && std::io::stderr().is_terminal();
        Self { bar, start: Instant::now(), wanted, bytes_per_row, rows: 0 }
    }

    /// Begins at a row that was reached before.
    pub(crate) fn start_at(&mut self, row: u64) {
        self.bar.set_position(row);
        self.bar.reset_eta();
    }

    /// Counts rows that are done.
    pub(crate) fn add(&mut self, rows: usize) {
        self.rows += rows as u64;
        self.bar.inc(rows as u64);
        if !self.wanted {
            return;
        }
        let elapsed = self.start.elapsed();
        if self.bar.is_hidden() && elapsed > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        let rate = self.rows as f64 / elapsed.as_secs_f64().max(1e-9);
        self.bar.set_message(message(self.bar.position(), rate, rate * self.bytes_per_row as f64));
    }
}

/// Rows so far, rows and bytes a second. Short, so that the whole line fits 60 columns.
fn message(rows: u64, rate: f64, bytes: f64) -> String {
    let mut text = format!("{} rows  {}/s", short(rows as f64), short(rate));
    if bytes > 0.0 {
        text += &format!("  {}B/s", short(bytes));
    }
    text
}

/// A number in at most five characters: 950, 12.3k, 4.56M.
fn short(x: f64) -> String {
    for (unit, name) in [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")] {
        let value = x / unit;
        // What would be rounded to 1000 takes the next unit.
        if value < 999.5 {
            return match value {
                _ if name.is_empty() => format!("{value:.0}"),
                v if v < 9.995 => format!("{v:.2}{name}"),
                v if v < 99.95 => format!("{v:.1}{name}"),
                v => format!("{v:.0}{name}"),
            };
        }
    }
    format!("{:.0}T", x / 1e12)
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_60_columns() {
        for (x, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (12_345.0, "12.3k"),
            (99_960.0, "100k"),
            (999_600.0, "1.00M"),
            (4_560_000.0, "4.56M"),
            (7.1e10, "71.0G"),
        ] {
            assert_eq!(short(x), text);
        }
        let longest = message(99_900_000_000, 12_300_000.0, 1.23e9);
        assert_eq!(longest, "99.9G rows  12.3M/s  1.23GB/s");
        // The longest name of a job with bytes, the percentage, the time left, and the blanks between.
        let rest = "converting ".len() + " 100%  ".len() + "  59m left".len();
        assert!(rest + longest.len() <= 57, "at least three columns for the bar");
    }
}
