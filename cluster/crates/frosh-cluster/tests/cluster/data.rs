//! Programs, files and made-up vectors.

use arrow_array::{
    Array as _, ArrayRef, ArrowPrimitiveType, BinaryViewArray, FixedSizeListArray, Int64Array,
    PrimitiveArray, RecordBatch,
};
use arrow_schema::Field;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, OnceLock};

/// This workspace's program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_frosh-cluster");

/// Prints that a test was skipped and why, past the capture of output.
pub(crate) fn skipped(why: &str) {
    use std::io::Write as _;
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {why}", thread.name().unwrap_or("a test"));
}

/// The `frosh` program of this repository, which is built first. FROSH_PROGRAM names another.
pub(crate) fn frosh() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(path) = std::env::var_os("FROSH_PROGRAM") {
            return path.into();
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args([
            "build",
            "--release",
            "-p",
            "frosh-cli",
            "--message-format=json-render-diagnostics",
        ]);
        let output = build.current_dir(&root).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let messages = String::from_utf8(output.stdout).unwrap();
        let messages =
            messages.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
        let mut programs = messages.filter(|m| m["target"]["name"] == "frosh");
        let program = programs.find_map(|m| m["executable"].as_str().map(PathBuf::from));
        program.expect("cargo names the program that it built")
    })
}

/// Runs a command to its end.
pub(crate) fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Runs a command that must succeed, and returns what it prints.
pub(crate) fn ok(command: &mut Command) -> String {
    let output = output(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail with exit code 1 or 2, and returns what it says.
pub(crate) fn fails(command: &mut Command, code: i32) -> String {
    let output = output(command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
    said
}

/// Numbers that look like embeddings: a few strong directions and noise.
pub(crate) fn made_up(seed: u64, rows: usize, dim: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let mut all = Vec::with_capacity(rows * dim);
    for _ in 0..rows {
        let strong: Vec<f32> = (0..12).map(|k| next() * 4.0 / (1.0 + k as f32)).collect();
        all.extend((0..dim).map(|j| strong[j % 12] * ((j * 7 % 5) as f32 - 2.0) + 0.3 * next()));
    }
    all
}

/// Writes a Parquet file with the columns id (from `first`) and embedding, in row groups of 1,000 rows.
pub(crate) fn write<P: ArrowPrimitiveType>(
    path: &Path,
    first: usize,
    values: &[P::Native],
    dim: usize,
) {
    let rows = values.len() / dim;
    let ids = Int64Array::from_iter_values((first..first + rows).map(|id| id as i64));
    let values: ArrayRef = Arc::new(PrimitiveArray::<P>::from_iter_values(values.iter().copied()));
    let field = Arc::new(Field::new_list_field(P::DATA_TYPE, true));
    let vectors = FixedSizeListArray::new(field, dim as i32, values, None);
    let columns: [(&str, ArrayRef); 2] = [("id", Arc::new(ids)), ("embedding", Arc::new(vectors))];
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1000)).build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// The ids and codes of a file that `encode` wrote.
pub(crate) fn codes(path: &Path) -> Vec<(i64, Vec<u8>)> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let mut rows = Vec::new();
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        let ids = batch
            .column_by_name("id")
            .unwrap()
            .as_any()
            .downcast_ref::<Int64Array>()
            .unwrap()
            .clone();
        let codes = batch.column_by_name("code").unwrap();
        let codes: Vec<Vec<u8>> = match codes.as_any().downcast_ref::<BinaryViewArray>() {
            Some(views) => views.iter().map(|x| x.unwrap().to_vec()).collect(),
            None => {
                let plain = codes.as_any().downcast_ref::<arrow_array::BinaryArray>().unwrap();
                plain.iter().map(|x| x.unwrap().to_vec()).collect()
            }
        };
        rows.extend(ids.values().iter().copied().zip(codes));
    }
    rows
}

/// Parquet files of made-up vectors in a folder, of different lengths.
pub(crate) fn files(folder: &Path, sizes: &[usize], dim: usize) -> Vec<PathBuf> {
    let mut first = 0;
    let mut paths = Vec::new();
    for (i, rows) in sizes.iter().enumerate() {
        let path = folder.join(format!("part-{i}.parquet"));
        write::<arrow_array::types::Float32Type>(
            &path,
            first,
            &made_up(i as u64 + 1, *rows, dim),
            dim,
        );
        first += rows;
        paths.push(path);
    }
    paths
}

/// What the `frosh` program makes of the files: a sketch for each, merged, and a model. Returns the bytes of the merged
/// sketch and of the model.
pub(crate) fn by_the_program(
    folder: &Path,
    files: &[PathBuf],
    learning: &[&str],
    bits: &str,
) -> (Vec<u8>, Vec<u8>) {
    fitted_by_the_program(folder, files, learning, ["--bits", bits])
}

/// The same with another option of `frosh fit`.
pub(crate) fn fitted_by_the_program(
    folder: &Path,
    files: &[PathBuf],
    learning: &[&str],
    fitting: [&str; 2],
) -> (Vec<u8>, Vec<u8>) {
    let mut sketches = Vec::new();
    for (i, file) in files.iter().enumerate() {
        let sketch = folder.join(format!("{i}.sketch"));
        let mut command = Command::new(frosh());
        command.args(["sketch", "--worker", "auto", "--column", "embedding", "-q", "-o"]);
        ok(command.arg(&sketch).arg(file).args(learning));
        sketches.push(sketch);
    }
    // In another order than the files: it must not matter.
    sketches.reverse();
    let (merged, model) = (folder.join("merged.sketch"), folder.join("program.frosh"));
    ok(Command::new(frosh()).args(["merge", "-q", "-o"]).arg(&merged).args(&sketches));
    ok(Command::new(frosh())
        .args(["fit", "--force", "-q"])
        .args(fitting)
        .arg("-o")
        .arg(&model)
        .arg(&merged));
    (std::fs::read(merged).unwrap(), std::fs::read(model).unwrap())
}
