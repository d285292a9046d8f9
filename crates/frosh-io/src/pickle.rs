//! Refuses pickles, which PyTorch and many Python programs write. A pickle is a program that builds objects:
//! loading one can run any code, and what it builds need not be an array.
//!
//! PyTorch writes a zip archive with an entry `data.pkl`; before version 1.6 it wrote pickles one after the
//! other. Both are known by their content, whatever their name.

use crate::error::Fault;
use std::path::Path;

/// Names end so for files that are pickles, or archives of pickles.
const EXTENSIONS: [&str; 6] = ["pt", "pth", "ckpt", "pkl", "pickle", "joblib"];

/// Refuses a file that is a pickle by its first bytes or its name. It is called only for files whose names tell
/// no format: others may begin with the same bytes.
pub(crate) fn refuse(head: &[u8], path: &Path) -> Result<(), Fault> {
    if head.starts_with(&[0x80, 2, 0x8a, 0x0a, 0x6c, 0xfc]) {
        return Err(torch("a PyTorch file from before version 1.6 (a pickle)"));
    }
    let by_name = path.extension().is_some_and(|extension| {
        EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
    });
    // Protocols 2 to 5 begin with their number; a dot ends every pickle, but that is at the end of the file.
    let by_content = matches!(head, [0x80, 2..=5, ..]);
    if by_content || by_name {
        return Err(Fault::file(
            "is a pickle, a program that builds Python objects; it is not run here. Convert it with Python, \
             if you trust it: import pickle, numpy; numpy.save('vectors.npy', \
             numpy.asarray(pickle.load(open('FILE', 'rb'))))",
        ));
    }
    Ok(())
}

/// Refuses a zip archive that PyTorch has written.
pub(crate) fn refuse_archive(entries: &[String]) -> Result<(), Fault> {
    if entries.iter().any(|name| name == "data.pkl" || name.ends_with("/data.pkl")) {
        return Err(torch("a PyTorch file (an archive with a pickle)"));
    }
    Ok(())
}

fn torch(what: &str) -> Fault {
    Fault::file(format!(
        "is {what}, which is not read here. Convert it with Python: import torch, numpy; \
         numpy.save('vectors.npy', torch.load('FILE', map_location='cpu').float().numpy()); for a dictionary, \
         with ['NAME'] after torch.load(...)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::{Options, detect};
    use std::io::Write;

    fn refusal(name: &str, content: &[u8]) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        let opened = crate::open::open(&path, &Options::default()).map(|_| ());
        opened.err().map(|fault| fault.at(Path::new("f")).to_string())
    }

    #[test]
    fn pickles_are_named_with_the_way_to_convert_them() {
        for (name, content) in [
            ("a.pkl", &b"\x80\x04\x95\x10\0\0\0\0\0\0\0]\x94."[..]),
            ("a.bin", b"\x80\x02]q\0."),
            ("a", b"\x80\x05]\x94."),
            ("a.joblib", b"\x80\x04\x95\x10\0\0\0\0\0\0\0]\x94."),
            ("a.PKL", b"(lp0\n."),
            ("a.pt", b"anything else"),
        ] {
            let why = refusal(name, content).unwrap();
            assert!(why.starts_with("f: is a pickle"), "{name}: {why}");
            assert!(why.contains("numpy.save(") && why.contains("pickle.load"), "{why}");
        }
        for name in ["a.pt", "pytorch_model.bin", "a"] {
            let why = refusal(name, b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.").unwrap();
            assert!(why.contains("before version 1.6") && why.contains("torch.load"), "{why}");
        }
    }

    #[test]
    fn an_archive_of_pytorch_is_not_taken_for_npz() {
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored);
        for (name, content) in [("a/data.pkl", &b"\x80\x02]q\0."[..]), ("a/data/0", &[0; 64])] {
            zip.start_file(name, options).unwrap();
            zip.write_all(content).unwrap();
        }
        let bytes = zip.finish().unwrap().into_inner();
        for name in ["a.pt", "a.pth", "pytorch_model.bin", "a.npz", "a"] {
            let why = refusal(name, &bytes).unwrap();
            assert!(why.starts_with("f: is a PyTorch file"), "{name}: {why}");
            assert!(why.contains("torch.load(") && why.contains("numpy.save("), "{why}");
        }
    }

    #[test]
    fn other_files_may_begin_with_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.raw", "a.fvecs", "a.u8bin"] {
            let path = dir.path().join(name);
            std::fs::write(&path, [0x80, 4, 0, 0, 0, 0, 0, 0]).unwrap();
            assert!(detect(&path, &Options::default()).is_ok(), "{name}");
        }
    }
}
