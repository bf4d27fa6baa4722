//! Where the nats-server programs are.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::checkout;

/// A version of nats-server that the project is tested with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Version {
    /// 2.10.26: no per-message TTL, no markers.
    V2_10,
    /// 2.11.11: the first line with both.
    V2_11,
    /// 2.12.8.
    V2_12,
    /// 2.14.6.
    V2_14,
    /// 2.15.1, which everything else runs on.
    #[default]
    V2_15,
}

impl Version {
    /// Every version, oldest first.
    pub const ALL: [Self; 5] = [Self::V2_10, Self::V2_11, Self::V2_12, Self::V2_14, Self::V2_15];

    /// The full version number.
    pub fn number(self) -> &'static str {
        match self {
            Self::V2_10 => "2.10.26",
            Self::V2_11 => "2.11.11",
            Self::V2_12 => "2.12.8",
            Self::V2_14 => "2.14.6",
            Self::V2_15 => "2.15.1",
        }
    }

    /// The environment variable that names its program.
    fn variable(self) -> &'static str {
        match self {
            Self::V2_10 => "NATS_SERVER_2_10",
            Self::V2_11 => "NATS_SERVER_2_11",
            Self::V2_12 => "NATS_SERVER_2_12",
            Self::V2_14 => "NATS_SERVER_2_14",
            Self::V2_15 => "NATS_SERVER",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.number())
    }
}

/// Makes one test per version of `nats-server` from a function that takes the [`Version`]. Without
/// a list, every version gets one.
///
/// The name of a test ends in its version, as `a_lock_is_held::v2_15`. `make test` installs the
/// newest version only, and leaves the tests of the others to `make verify` by these names.
///
/// ```
/// use incumbent_test_support::{Version, on_versions};
///
/// on_versions!(#[tokio::test] a_version_has_a_number: v2_10, v2_15);
/// async fn a_version_has_a_number(version: Version) {
///     assert!(version.number().starts_with("2."));
/// }
/// ```
#[macro_export]
macro_rules! on_versions {
    (# $attribute:tt $test:ident) => {
        $crate::on_versions!(# $attribute $test: v2_10, v2_11, v2_12, v2_14, v2_15);
    };
    (# $attribute:tt $test:ident: $($version:ident),+) => {
        mod $test {
            $(
                # $attribute
                async fn $version() {
                    super::$test($crate::on_versions!(@ $version)).await;
                }
            )+
        }
    };
    (@ v2_10) => { $crate::Version::V2_10 };
    (@ v2_11) => { $crate::Version::V2_11 };
    (@ v2_12) => { $crate::Version::V2_12 };
    (@ v2_14) => { $crate::Version::V2_14 };
    (@ v2_15) => { $crate::Version::V2_15 };
}

/// The program of a version: the one its environment variable names, else (for the default version)
/// the one on `PATH`, else the one that `make tools` installed.
///
/// # Panics
///
/// Where there is none, saying what to install; and in `make test`, for any but the newest.
pub fn find(version: Version) -> PathBuf {
    let is_refused = version != Version::default() && env::var_os("ONLY_NEWEST_SERVER").is_some();
    assert!(!is_refused, "{version} is not in `make test`: name the version as `on_versions` does");
    let named = env::var_os(version.variable()).filter(|path| !path.is_empty());
    look(version, named, env::var_os("PATH"), &checkout())
        .unwrap_or_else(|problem| panic!("{problem}"))
}

fn look(
    version: Version,
    named: Option<OsString>,
    path: Option<OsString>,
    root: &Path,
) -> Result<PathBuf, String> {
    if let Some(named) = named.map(PathBuf::from) {
        return match named.is_file() {
            true => Ok(named),
            false => Err(format!(
                "no nats-server at {}: correct or unset {}",
                named.display(),
                version.variable()
            )),
        };
    }
    if version == Version::default()
        && let Some(found) = path.as_ref().and_then(|path| {
            env::split_paths(path).map(|dir| dir.join("nats-server")).find(|file| file.is_file())
        })
    {
        return Ok(found);
    }
    let installed = root.join(format!(".tools/nats-server-{version}/nats-server"));
    if installed.is_file() {
        return Ok(installed);
    }
    Err(format!("no nats-server {version}: run `make tools`, or set {} to one", version.variable()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn touch(path: &Path) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        path.to_path_buf()
    }

    #[test]
    fn make_tools_installs_every_version() {
        let script = fs::read_to_string(checkout().join("scripts/install-nats.sh")).unwrap();
        let numbers: Vec<_> = Version::ALL.into_iter().map(Version::number).collect();
        assert!(script.contains(&format!("set -- {}\n", numbers.join(" "))));
        assert!(script.contains(&format!("\ndefault={}\n", Version::default())));
    }

    /// The names are those of [`on_versions`].
    #[test]
    fn make_test_leaves_older_versions_to_make_verify() {
        let script = fs::read_to_string(checkout().join("scripts/run-tests.sh")).unwrap();
        let older = Version::ALL.iter().filter(|&&version| version < Version::default());
        let names: Vec<_> = older.map(|version| format!("{version:?}").to_lowercase()).collect();
        assert!(script.contains(&format!("\nolder_servers=\"{}\"\n", names.join(" "))));
    }

    #[test]
    fn the_variable_wins_over_path_and_path_over_tools() {
        let dir = tempfile::tempdir().unwrap();
        let named = touch(&dir.path().join("named/server"));
        let on_path = touch(&dir.path().join("bin/nats-server"));
        let tool = touch(&dir.path().join(".tools/nats-server-2.15.1/nats-server"));
        let path = Some(dir.path().join("bin").into_os_string());
        let look = |named, path| look(Version::V2_15, named, path, dir.path());
        assert_eq!(look(Some(named.clone().into_os_string()), path.clone()), Ok(named));
        assert_eq!(look(None, path), Ok(on_path));
        assert_eq!(look(None, None), Ok(tool));
    }

    #[test]
    fn path_serves_the_default_version_only() {
        let dir = tempfile::tempdir().unwrap();
        touch(&dir.path().join("bin/nats-server"));
        let path = Some(dir.path().join("bin").into_os_string());
        let refusal = look(Version::V2_10, None, path, dir.path()).unwrap_err();
        assert_eq!(
            refusal,
            "no nats-server 2.10.26: run `make tools`, or set NATS_SERVER_2_10 to one"
        );
    }

    #[test]
    fn a_variable_that_names_no_file_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let refusal = look(Version::V2_15, Some("/nowhere/nats".into()), None, dir.path());
        assert_eq!(
            refusal,
            Err("no nats-server at /nowhere/nats: correct or unset NATS_SERVER".to_owned())
        );
    }
}
