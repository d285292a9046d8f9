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
            "{prefix} {wide_bar:.cyan/dim} {percent:>3}%  {human_pos} rows  {msg}  {eta} left"
        } else {
            "{prefix} {spinner} {human_pos} rows  {msg}"
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
        let megabytes = rate * self.bytes_per_row as f64 / 1e6;
        let rate = crate::output::count(rate as u64);
        let megabytes =
            if self.bytes_per_row > 0 { format!("  {megabytes:.0} MB/s") } else { String::new() };
        self.bar.set_message(format!("{rate} rows/s{megabytes}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
