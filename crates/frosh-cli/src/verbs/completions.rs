//! `frosh completions` and `frosh man`: made from the same table as the program's help.

use crate::output::print;
use anyhow::{Context as _, Result};
use clap::Args;
use std::path::PathBuf;

/// Print a completion script for a shell.
#[derive(Args)]
#[command(after_help = "Example:
  frosh completions bash > ~/.local/share/bash-completion/completions/frosh")]
pub(crate) struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::args::command(), "frosh", &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}

/// Write the manual pages, one for each verb.
#[derive(Args)]
#[command(after_help = "Example:
  frosh man ~/.local/share/man/man1 && man frosh-train")]
pub(crate) struct Man {
    /// Folder for the pages; without it, the main page is printed
    folder: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(&self) -> Result<()> {
        match &self.folder {
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(crate::args::command()).render(&mut page)?;
                print(&String::from_utf8_lossy(&page))
            }
            Some(folder) => std::fs::create_dir_all(folder)
                .and_then(|()| clap_mangen::generate_to(crate::args::command(), folder))
                .with_context(|| folder.display().to_string()),
        }
    }
}
