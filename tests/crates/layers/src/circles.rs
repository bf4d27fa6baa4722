//! Modules that use each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

/// A module of a folder, or the folder's own code (`mod.rs`): an empty name.
type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The circles among the modules of each folder: a module stands for all that is below it.
pub fn find<'a>(arrows: impl Iterator<Item = (&'a [String], &'a [String])>) -> Vec<String> {
    let mut folders: BTreeMap<&[String], Graph> = BTreeMap::new();
    for (user, used) in arrows {
        let common = user.iter().zip(used).take_while(|(a, b)| a == b).count();
        let below = |module: &'a [String]| module.get(common).map_or("", String::as_str);
        let folder = folders.entry(&user[..common]).or_default();
        folder.entry(below(user)).or_default().insert(below(used));
    }
    let mut found = Vec::new();
    for (folder, graph) in &folders {
        let mut left: BTreeSet<&str> = graph.keys().copied().collect();
        while let Some(module) = left.pop_first() {
            let circle: BTreeSet<&str> = reached(graph, module)
                .into_iter()
                .filter(|other| reached(graph, other).contains(module))
                .collect();
            left.retain(|other| !circle.contains(other));
            if !circle.is_empty() {
                let names = circle.iter().map(|name| if name.is_empty() { "mod.rs" } else { name });
                let names = names.collect::<Vec<_>>().join(", ");
                found.push(format!("{names} in {}", folder.join("/")));
            }
        }
    }
    found
}

/// What a module uses, itself or by what it uses.
fn reached<'a>(graph: &Graph<'a>, module: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = graph.get(module).into_iter().flatten().copied().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(graph.get(module).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(arrows: &[(&str, &str)]) -> Vec<String> {
        let path = |text: &str| -> Vec<String> {
            text.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let arrows: Vec<_> = arrows.iter().map(|(a, b)| (path(a), path(b))).collect();
        find(arrows.iter().map(|(a, b)| (a.as_slice(), b.as_slice())))
    }

    #[test]
    fn circles_of_modules_and_of_folders_are_found() {
        assert_eq!(circles(&[("a/x", "b/y"), ("b/y", "c"), ("a/x", "a/z")]), [""; 0]);
        assert_eq!(circles(&[("a/x", "b/y"), ("b/z", "a/u")]), ["a, b in "]);
        assert_eq!(circles(&[("a/x", "a/y"), ("a/y", "a/z"), ("a/z", "a/x")]), ["x, y, z in a"]);
        assert_eq!(circles(&[("a", "a/x"), ("a/x", "a")]), ["mod.rs, x in a"]);
    }
}
