//! The `frosh` program. Each verb is a file in `verbs/`; this one parses, runs, and turns errors into one
//! line and an exit code: 0 done, 1 failed, 2 wrong usage.

mod args;
mod asking;
mod checkpoint;
mod ground;
mod labels;
mod learn;
mod output;
mod progress;
mod verbs;

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    // A program that is told to stop leaves no unfinished file behind. Where no handler can be set, it may.
    let _ = ctrlc::set_handler(|| {
        frosh::Whole::remove_unfinished();
        std::process::exit(130);
    });
    match verbs::run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Whoever reads our output may stop (`| head`): an end, but not a success.
            if !output::is_broken_pipe(&error) {
                eprintln!("error: {}", output::chain(&error));
            }
            ExitCode::FAILURE
        }
    }
}
