//! The terms of an election as their holders reported them.

/// One term: when its holder began, and when its right to lead had ended, in nanoseconds of
/// `CLOCK_BOOTTIME`, which all processes of a machine share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    pub token: u64,
    pub began: u64,
    /// `None` while it lasts.
    pub ended: Option<u64>,
}

/// What must not be: terms that overlap, and tokens that do not grow.
pub fn faults(terms: &[Term]) -> Vec<String> {
    let mut terms = terms.to_vec();
    terms.sort_by_key(|term| term.began);
    let neighbours = terms.iter().zip(terms.iter().skip(1));
    neighbours
        .filter_map(|(one, next)| {
            if one.ended.is_none_or(|ended| ended > next.began) {
                return Some(format!("{one:?} overlaps {next:?}"));
            }
            (next.token <= one.token).then(|| format!("{next:?} has no greater token than {one:?}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(token: u64, began: u64, ended: Option<u64>) -> Term {
        Term { token, began, ended }
    }

    #[test]
    fn consecutive_terms_are_accepted() {
        let terms = [term(9, 40, None), term(1, 10, Some(20)), term(5, 20, Some(40))];
        assert_eq!(faults(&terms), Vec::<String>::new());
    }

    #[test]
    fn an_overlap_is_found_in_either_order_of_reports() {
        assert_eq!(faults(&[term(5, 19, Some(40)), term(1, 10, Some(20))]).len(), 1);
        assert_eq!(faults(&[term(1, 10, None), term(5, 20, None)]).len(), 1);
    }

    #[test]
    fn a_token_that_does_not_grow_is_found() {
        assert_eq!(faults(&[term(5, 10, Some(20)), term(5, 20, None)]).len(), 1);
    }
}
