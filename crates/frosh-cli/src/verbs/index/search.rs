//! `frosh index search`: neighbours in an index.

use crate::args::{Common, names};
use crate::query_args::{QueryArgs, print_hits};
use anyhow::{Result, bail};
use clap::Args;
use frosh::{Index, Ranking, Rows};
use frosh_io::{IdType, Ids};
use std::path::PathBuf;

/// Find the nearest rows for query vectors.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh index search index/ --queries q.npy -k 10
  frosh index search index/ --queries q.npy --only allowed.txt --json
  frosh index search index/ --queries q.npy --radius 5

Where the index keeps vectors, the best --oversample times k rows are put in exact order, and distances are
squared Euclidean ones (for cosine: of unit vectors). Otherwise they are estimates of those, or with --rank
hamming the bits that differ. Neighbours come by distance, equal ones by id; if ids are text, in the order in
which they were added. With --skip-bad, a query that
cannot be used finds nothing, and the other queries keep their numbers.")]
pub(super) struct IndexSearch {
    /// The index
    #[arg(value_name = "INDEX")]
    index: PathBuf,
    /// How codes are compared with queries; by default as the model chose, and estimated if there are several versions
    #[arg(long, value_name = "NAME", ignore_case = true,
          value_parser = names::<Ranking>(Ranking::NAMES))]
    rank: Option<Ranking>,
    /// Where vectors are stored: candidates for each neighbour wanted; 0 leaves the order of the codes. By default what
    /// the model expects to need for a recall of .9
    #[arg(long, value_name = "N", conflicts_with = "radius")]
    oversample: Option<u32>,
    /// Allow Hamming and asymmetric distances though the index has several versions of its model. Such distances of
    /// different models cannot be compared, so that nearer rows may be missed
    #[arg(long)]
    mix_versions: bool,
    /// Do not compare what is read with its checksums: damage then gives wrong answers
    #[arg(long)]
    no_verify: bool,
    #[command(flatten)]
    query_args: QueryArgs,
}

impl IndexSearch {
    pub(super) fn run(&self, common: &Common) -> Result<()> {
        crate::kinds::check_index(&self.index)?;
        let index = Index::open(&self.index)?.verify(!self.no_verify);
        if self.rank == Some(Ranking::Estimated) && !index.can_estimate() {
            bail!(
                "{} was built with --no-factors, which estimated distances need: use --rank asymmetric",
                self.index.display()
            );
        }
        let kind = Some(if index.has_names() { IdType::Text } else { IdType::Number });
        let asked = self.query_args.read(index.model(), &self.index, kind, common)?;
        let only = match &asked.only {
            None => None,
            Some(Ids::Names(names)) => Some(index.find_all(names.iter())?),
            Some(Ids::Numbers(_)) if index.has_names() => {
                bail!("--only: its ids are whole numbers, and those of the index are text")
            }
            Some(Ids::Numbers(ids)) => Some(ids.iter().copied().collect()),
        };
        let mut search =
            self.query_args.search(self.query_args.k as usize, self.rank, only.as_ref());
        let stored = index.vectors().is_some();
        if let Some(oversample) = self.oversample.filter(|_| stored) {
            search = search.rerank(oversample as usize);
        }
        if self.mix_versions {
            search = search.mix_versions();
        }
        let rows = Rows::new(&asked.values, index.model().dim())?;
        let rank = self.rank.unwrap_or(index.ranking());
        let by_codes = !stored || self.oversample == Some(0);
        let whole = self.query_args.radius.is_some() || rank == Ranking::Hamming && by_codes;
        let found = index.search(rows, &search)?;
        let name = |id| Ok(index.name(id)?);
        print_hits(common, &found, &asked.left_out, whole, name)
    }
}
