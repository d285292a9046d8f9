//! A small index folder with one of its files replaced by the input, opened, searched and changed.

use frosh::{Config, Hasher, Index, IndexWriter, Pool, Ranking, Rows, Sketcher, StoredVectors};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use xxhash_rust::xxh3::xxh3_64;

const DIM: usize = 6;

fn data(rows: usize) -> Vec<f32> {
    (0..rows * DIM).map(|i| (i.wrapping_mul(i * 31 + 17) % 41) as f32 - 20.0).collect()
}

struct Template {
    folder: PathBuf,
    hasher: Hasher,
    /// Names and contents of all files.
    files: Vec<(String, Vec<u8>)>,
}

/// Made once: rows with ids in steps of three, of which one was removed.
fn template() -> &'static Template {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let shared = PathBuf::from("/dev/shm");
        let place = if shared.is_dir() { shared } else { std::env::temp_dir() };
        let folder = place.join(format!("frosh-fuzz-index-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let values = data(40);
        let rows = Rows::new(&values, DIM).expect("whole rows");
        let mut sketcher = Sketcher::new(Config::new(DIM).sketch_rows(8)).expect("settings");
        sketcher.push(rows).expect("rows");
        let hasher = sketcher.finish().hasher(4).expect("bits");
        let stored = Some(StoredVectors::F16);
        let mut writer = IndexWriter::create(&folder, &hasher, true, stored).expect("a folder");
        let mut new = writer.add(&Pool::ONE);
        let ids: Vec<u64> = (0..40).map(|i| 3 * i).collect();
        new.push_with_ids(rows, &ids).expect("rows");
        new.commit().expect("space");
        writer.remove(&[9]).expect("space");
        drop(writer);
        let entries = std::fs::read_dir(&folder).expect("just made");
        let names =
            entries.map(|e| e.expect("readable").file_name().to_string_lossy().into_owned());
        let files = names
            .map(|name| {
                let bytes = std::fs::read(folder.join(&name)).expect("just written");
                (name, bytes)
            })
            .collect();
        Template { folder, hasher, files }
    })
}

/// A manifest of this content, with its checksum.
fn manifest(content: &Value) -> Vec<u8> {
    let checksum = format!("xxh3:{:016x}", xxh3_64(content.to_string().as_bytes()));
    let whole =
        json!({"format": "frosh-index", "version": 1, "checksum": checksum, "content": content});
    whole.to_string().into_bytes()
}

/// The first byte chooses what the rest replaces.
pub fn index(bytes: &[u8]) {
    let template = template();
    let Some((first, rest)) = bytes.split_first() else { return };
    let folder = &template.folder;
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir(folder).expect("a folder");
    for (name, bytes) in &template.files {
        std::fs::write(folder.join(name), bytes).expect("space");
    }
    let whole = template.files.iter().find(|(name, _)| name == "index.json").map(|f| &f.1[..]);
    let mut content: Value = serde_json::from_slice(whole.expect("it is there")).expect("sound");
    let mut content = content["content"].take();
    let replace = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.join(name), bytes).expect("space");
    };
    match first % 5 {
        0 => replace("index.json", rest),
        1 => match serde_json::from_slice::<Value>(rest) {
            Ok(Value::Object(mut content)) => {
                // Nobody guesses an id.
                content.insert("model".into(), json!(template.hasher.id().to_string()));
                replace("index.json", &manifest(&Value::Object(content)));
            }
            _ => return,
        },
        2 => {
            // A set of removed rows, with a checksum that fits.
            content["segments"][0]["removed"] = json!({
                "number": 7,
                "rows": first / 5,
                "checksum": format!("xxh3:{:016x}", xxh3_64(rest)),
            });
            replace("000007.removed", rest);
            replace("index.json", &manifest(&content));
        }
        3 => replace("000001.ids.npy", rest),
        _ => {
            // Ids of the right number and any order.
            let name = "000001.ids.npy";
            let old = template.files.iter().find(|f| f.0 == name).map(|f| &f.1[..]);
            let mut file = old.expect("it is there").to_vec();
            let values = &mut file[128..];
            let length = rest.len().min(values.len());
            values[..length].copy_from_slice(&rest[..length]);
            replace(name, &file);
        }
    }
    use_it(folder, &template.hasher);
}

fn use_it(folder: &Path, hasher: &Hasher) {
    let Ok(index) = Index::open(folder) else { return };
    let values = data(3);
    let rows = Rows::new(&values, DIM).expect("whole rows");
    let queries = hasher.queries(&Pool::ONE, rows).expect("rows");
    let only = (0..20).collect();
    for among in [None, Some(&only)] {
        for ranking in [Ranking::Hamming, Ranking::Asymmetric, Ranking::Estimated] {
            if let Ok(found) = index.nearest(&Pool::ONE, &queries, ranking, 5, among) {
                assert!(found.iter().all(|list| list.len() <= 5));
                let _ = index.rerank(&Pool::ONE, rows, &found, 2);
            }
        }
        let _ = index.within(&Pool::ONE, &queries, 2, among);
    }
    let _ = (index.check(), index.contains(12), index.len());
    let Ok(mut writer) = IndexWriter::open(folder) else { return };
    let _ = writer.remove(&[12, 15]);
    let mut new = writer.add(&Pool::ONE).replace(true);
    let _ = new.push_with_ids(rows, &[1, 30, 31]);
    let _ = new.commit();
    let _ = writer.compact();
}
