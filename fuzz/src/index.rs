//! A small index folder with one of its files replaced by the input, opened, searched and changed.

use frosh::{
    Config, Hasher, IdSet, Index, IndexWriter, Ranking, Rows, Search, Sketcher, StoredVectors,
};
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
        let mut new = writer.add();
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

fn checksum(bytes: &[u8]) -> String {
    format!("xxh3:{:016x}", xxh3_64(bytes))
}

/// A manifest of this content, with its checksum.
fn manifest(content: &Value) -> Vec<u8> {
    let checksum = checksum(content.to_string().as_bytes());
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
    match first % 8 {
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
                "rows": first / 8,
                "checksum": checksum(rest),
            });
            replace("000007.removed", rest);
            replace("index.json", &manifest(&content));
        }
        3 => replace("000001.ids.npy", rest),
        4 => {
            // Ids of the right number and any order, with a checksum that fits.
            let name = "000001.ids.npy";
            let old = template.files.iter().find(|f| f.0 == name).map(|f| &f.1[..]);
            let mut file = old.expect("it is there").to_vec();
            let values = &mut file[128..];
            let length = rest.len().min(values.len());
            values[..length].copy_from_slice(&rest[..length]);
            content["segments"][0]["checksums"]["ids"] = json!(checksum(&file[128..]));
            replace(name, &file);
            replace("index.json", &manifest(&content));
        }
        5 => {
            replace("journal", rest);
            journal(folder, &[]);
        }
        6 => {
            // Names with checksums that fit.
            let mut text = b"frosh-index-journal 1\n".to_vec();
            let names: Vec<&[u8]> = rest.split(|byte| *byte == b'\n').collect();
            for name in &names {
                text.extend(format!("\n{:016x} ", xxh3_64(name)).bytes().chain(name.iter().copied()));
                text.push(b'\n');
            }
            replace("journal", &text);
            journal(folder, &names);
        }
        _ => {
            // Checksums of blocks: one for each of the four arrays.
            let header = "{'descr': '<u8', 'fortran_order': False, 'shape': (4,), }";
            let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
            file.extend(format!("{header:<117}\n").bytes());
            file.extend(rest);
            content["segments"][0]["checksums"]["blocks"] = json!(checksum(rest));
            replace("000001.checksums.npy", &file);
            replace("index.json", &manifest(&content));
        }
    }
    use_it(folder);
}

/// Whatever a journal says, a writer removes no file of the index, and none that the journal does not name.
fn journal(folder: &Path, names: &[&[u8]]) {
    let others = ["mine.npy", "000077.codes.npy", "20260101.vectors.npy"];
    others.iter().for_each(|name| std::fs::write(folder.join(name), "mine").expect("space"));
    let opened = IndexWriter::open(folder).is_ok();
    Index::open(folder).and_then(|index| index.check()).expect("the index is sound");
    for name in others {
        let named = opened && names.contains(&name.as_bytes()) && name != "mine.npy";
        assert!(named || folder.join(name).exists(), "{name} is gone");
    }
}

fn use_it(folder: &Path) {
    for verify in [true, false] {
        let Ok(index) = Index::open(folder) else { return };
        search(&index.verify(verify));
    }
    let values = data(3);
    let rows = Rows::new(&values, DIM).expect("whole rows");
    let Ok(mut writer) = IndexWriter::open(folder) else { return };
    let _ = writer.remove(&[12, 15]);
    let mut new = writer.add().replace(true);
    let _ = new.push_with_ids(rows, &[1, 30, 31]);
    let _ = new.commit();
    let _ = writer.fold(1).commit();
    let _ = writer.compact();
}

fn search(index: &Index) {
    let values = data(3);
    let rows = Rows::new(&values, DIM).expect("whole rows");
    let only: IdSet = (0..20).collect();
    for ranking in [Ranking::Hamming, Ranking::Asymmetric, Ranking::Estimated] {
        let search = Search::nearest(5).ranking(ranking);
        for search in [search.clone().rerank(0), search.clone().filter(&only), search] {
            if let Ok(found) = index.search(rows, &search) {
                assert!(found.iter().all(|list| list.len() <= 5));
            }
        }
    }
    let _ = index.search(rows, &Search::within(2));
    let _ = index.search(rows, &Search::within(2).filter(&only));
    let _ = (index.check(), index.contains(12), index.len(), index.other_files());
    let _ = (index.versions().len(), index.ranking(), index.sketcher(), index.learned_rows());
    let _ = (index.name(12), index.find("row 3"), index.find_all(["row 3", "row 5"]));
}
