//! The modules of a crate, and which of them uses which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

type ModulePath = Vec<String>;

/// What one module says.
#[derive(Debug, Default)]
struct Module {
    /// Names that it passes on, and what they stand for.
    reexports: BTreeMap<String, ModulePath>,
    /// What it uses, as paths from the root of the crate.
    uses: BTreeSet<ModulePath>,
}

/// The modules of a crate. Tests are none.
#[derive(Debug, Default)]
pub struct Sources {
    modules: BTreeMap<ModulePath, Module>,
    arrows: BTreeSet<(ModulePath, ModulePath)>,
}

impl Sources {
    /// Reads a crate from its root file.
    ///
    /// # Errors
    /// A file that cannot be read, or is no Rust.
    pub fn read(root: &Path) -> Result<Self, String> {
        let mut sources = Self::default();
        sources.read_file(root, root.parent().unwrap_or(root), Vec::new())?;
        let mut arrows = BTreeSet::new();
        for (user, module) in &sources.modules {
            for used in &module.uses {
                let used = sources.resolve(used, 0);
                if used != *user {
                    arrows.insert((user.clone(), used));
                }
            }
        }
        sources.arrows = arrows;
        Ok(sources)
    }

    pub fn modules(&self) -> impl Iterator<Item = &ModulePath> {
        self.modules.keys()
    }

    /// Which module uses which other one.
    pub fn arrows(&self) -> impl Iterator<Item = (&[String], &[String])> {
        self.arrows.iter().map(|(user, used)| (user.as_slice(), used.as_slice()))
    }

    /// `folder`: where the files of its modules are.
    fn read_file(&mut self, file: &Path, folder: &Path, path: ModulePath) -> Result<(), String> {
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let text = fs::read_to_string(file).map_err(|error| at(&error))?;
        let parsed = syn::parse_file(&text).map_err(|error| at(&error))?;
        self.read_items(&parsed.items, folder, path)
    }

    fn read_items(
        &mut self,
        items: &[Item],
        folder: &Path,
        path: ModulePath,
    ) -> Result<(), String> {
        let mut module = Module::default();
        let items: Vec<_> = items.iter().filter(|item| !is_left_out(attributes(item))).collect();
        let children: BTreeSet<String> = items
            .iter()
            .filter_map(|item| match item {
                Item::Mod(child) => Some(child.ident.to_string()),
                _ => None,
            })
            .collect();
        for item in items {
            match item {
                Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let path = [path.as_slice(), std::slice::from_ref(&name)].concat();
                    let folder = folder.join(&name);
                    match &child.content {
                        Some((_, items)) => self.read_items(items, &folder, path)?,
                        None => self.read_file(&file_of(&folder), &folder, path)?,
                    }
                }
                Item::Use(item) => {
                    let passed_on = !matches!(item.vis, Visibility::Inherited);
                    let mut leaves = Vec::new();
                    flatten(&item.tree, &mut Vec::new(), &mut leaves);
                    for (name, leaf) in leaves {
                        let Some(target) = absolute(&path, &children, &leaf) else { continue };
                        match (passed_on, name) {
                            (true, Some(name)) => drop(module.reexports.insert(name, target)),
                            (true, None) => {}
                            (false, _) => drop(module.uses.insert(target)),
                        }
                    }
                }
                item => {
                    let mut paths = Paths(Vec::new());
                    paths.visit_item(item);
                    let used = paths.0.iter().filter_map(|used| absolute(&path, &children, used));
                    module.uses.extend(used);
                }
            }
        }
        self.modules.insert(path, module);
        Ok(())
    }

    /// The module that defines what a path names, found through re-exports.
    fn resolve(&self, path: &[String], depth: usize) -> ModulePath {
        let mut at = 0;
        while at < path.len() && self.modules.contains_key(&path[..=at]) {
            at += 1;
        }
        let (module, rest) = path.split_at(at);
        let found = self.modules.get(module).zip(rest.first()).and_then(|(known, name)| {
            let direct = known.reexports.get(name).cloned();
            direct.map(|target| [&target, &rest[1..]].concat())
        });
        match found {
            Some(target) if depth < 16 => self.resolve(&target, depth + 1),
            _ => module.to_vec(),
        }
    }
}

fn file_of(folder: &Path) -> PathBuf {
    let file = folder.with_extension("rs");
    if file.exists() { file } else { folder.join("mod.rs") }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        _ => &[],
    }
}

/// Tests, and what only the documentation uses.
fn is_left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|flag| flag == "test" || flag == "doc")
    })
}

/// Each name that a `use` brings in, and its path; no name: all names of that path.
fn flatten(
    tree: &UseTree,
    before: &mut ModulePath,
    leaves: &mut Vec<(Option<String>, ModulePath)>,
) {
    let mut leaf = |name: Option<String>, last: Option<String>| {
        leaves.push((name, before.iter().cloned().chain(last).collect()));
    };
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, leaves);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => leaf(before.last().cloned(), None),
        UseTree::Name(name) => leaf(Some(name.ident.to_string()), Some(name.ident.to_string())),
        UseTree::Rename(name) => leaf(Some(name.rename.to_string()), Some(name.ident.to_string())),
        UseTree::Glob(_) => leaf(None, None),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, before, leaves);
            }
        }
    }
}

/// From the root of the crate; `None`: of another crate, or what the module itself has.
fn absolute(module: &[String], children: &BTreeSet<String>, path: &[String]) -> Option<ModulePath> {
    let first = path.first()?;
    match first.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => {
            let ups = path.iter().take_while(|part| *part == "super").count();
            let base = module.len().checked_sub(ups)?;
            Some([&module[..base], &path[ups..]].concat())
        }
        name if path.len() > 1 && children.contains(name) => Some([module, path].concat()),
        _ => None,
    }
}

/// The paths of an item, those in macros too.
struct Paths(Vec<ModulePath>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.tokens(called.tokens.clone());
        visit::visit_macro(self, called);
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}
}

impl Paths {
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = ModulePath::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 && !path.is_empty() {
                        self.0.push(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.0.push(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.0.push(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let folder = std::env::temp_dir().join(format!("incumbent-layers-{}", std::process::id()));
        for (name, text) in files {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let sources = Sources::read(&folder.join("lib.rs")).unwrap();
        fs::remove_dir_all(folder).unwrap();
        sources.arrows().map(|(a, b)| format!("{} -> {}", a.join("/"), b.join("/"))).collect()
    }

    #[test]
    fn an_arrow_leads_to_the_module_that_defines_the_name() {
        let found = arrows(&[
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod inner; pub use inner::Thing; pub struct Own;"),
            ("a/inner.rs", "pub struct Thing; #[cfg(test)] mod tests { use crate::b::B; }"),
            (
                "b.rs",
                "use crate::a::{Own, Thing as T}; pub struct B; fn f() { m!(super::a::Own::new()) }",
            ),
        ]);
        assert_eq!(found, ["b -> a", "b -> a/inner"]);
    }
}
