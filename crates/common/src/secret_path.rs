//! Paths of files with secrets, which errors show.

use std::path::Path;

use crate::secret_url::MASK;

/// Returns a path as an error may show it. What is no file, and in none of the directories that exist, may be the
/// secret itself, given where the path of its file belongs, and is masked.
pub fn shown_path(path: &Path) -> String {
    // The root is above every text that starts with a slash.
    let is_directory = |above: &Path| above.parent().is_some() && above.is_dir();
    match path.exists() || path.ancestors().skip(1).any(is_directory) {
        true => path.display().to_string(),
        false => format!("{MASK} (not a file)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_secret_is_masked() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a");
        std::fs::write(&file, "").unwrap();
        let missing = directory.path().join("b");
        for path in [&*file, &*missing, &missing.join("c"), "src/none".as_ref(), "src".as_ref()] {
            assert_eq!(shown_path(path), path.display().to_string());
        }
        let token = "c2VjcmV0";
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{token}/{token}\n");
        for text in [token, &format!("/{token}"), &format!("{token}/{token}"), &pem] {
            assert_eq!(shown_path(text.as_ref()), "*** (not a file)", "{text}");
        }
    }
}
