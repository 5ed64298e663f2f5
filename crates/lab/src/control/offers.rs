//! Offers in messages: named strings, and descriptors in order.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use crossway_mech::Offer;
use serde::{Deserialize, Serialize};

use super::ControlError;

/// An [`Offer`]'s strings and the names of its descriptors, in the order in which they are attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferText {
    /// The strings of the offer, by name.
    pub words: BTreeMap<String, String>,
    /// The names of the offer's descriptors.
    pub fds: Vec<String>,
}

/// Splits offers into text and descriptors.
pub fn offers_to_text(offers: Vec<Offer>) -> (Vec<OfferText>, Vec<OwnedFd>) {
    let mut all = Vec::new();
    let texts = offers
        .into_iter()
        .map(|offer| {
            let mut names = Vec::new();
            for (name, fd) in offer.fds {
                names.push(name);
                all.push(fd);
            }
            OfferText { words: offer.words, fds: names }
        })
        .collect();
    (texts, all)
}

/// Combines text and descriptors into offers.
pub fn offers_from_text(
    texts: Vec<OfferText>,
    fds: Vec<OwnedFd>,
) -> Result<Vec<Offer>, ControlError> {
    let mut fds = fds.into_iter();
    texts
        .into_iter()
        .map(|text| {
            let mut offer = Offer { words: text.words, fds: Vec::new() };
            for name in text.fds {
                let fd = fds.next().ok_or_else(|| {
                    ControlError::Nonsense(format!("the descriptor '{name}' did not arrive"))
                })?;
                offer.fds.push((name, fd));
            }
            Ok(offer)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::control::{Order, Wire};

    #[test]
    fn offers_cross_with_their_descriptors_in_order() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (Wire::socket(a.into()).unwrap(), Wire::socket(b.into()).unwrap());
        let (x, y) = UnixStream::pair().unwrap();
        let offers = vec![
            Offer::new().with_word("path", "/x").with_fd("ring", x.into()),
            Offer::new().with_fd("bell", y.into()),
        ];
        let (texts, fds) = offers_to_text(offers);
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        a.say(&Order::Connect { offers: texts }, &borrowed).unwrap();
        let (order, fds) = b.hear::<Order>().unwrap();
        let Order::Connect { offers } = order else { panic!("{order:?}") };
        let offers = offers_from_text(offers, fds).unwrap();
        assert_eq!(offers[0].words["path"], "/x");
        assert_eq!(offers[0].fds[0].0, "ring");
        assert_eq!(offers[1].fds[0].0, "bell");
    }
}
