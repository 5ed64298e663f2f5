//! Tables on standard output: wrapped to the terminal's width, or as Markdown.

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, Width,
    presets,
};

use crate::ui::Ui;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// The highlighting of a cell if output is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Good,
    Bad,
    Unsure,
}

/// Minimum width in characters of a long column of text. If there is no room for it, columns of figures are wrapped,
/// too.
const LEAST_TEXT: usize = 10;
/// Maximum width in characters of a short column of text, which is not wrapped if there is room for it.
const WHOLE_TEXT: usize = 16;
/// Number of blanks around each cell, on the left and right together.
const PADDING: usize = 2;

/// A table of text cells.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    heads: Vec<(String, Align)>,
    rows: Vec<Vec<(String, Tone)>>,
}

/// What [`Grid::fitted`] has left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Headings of the columns.
    pub(crate) heads: Vec<String>,
    /// Width in columns of the terminal at which nothing is left out.
    pub(crate) needed: usize,
}

impl LeftOut {
    /// Says what is missing and how to see it; `None` if nothing is.
    pub(crate) fn sentence(&self) -> Option<String> {
        (!self.heads.is_empty()).then(|| {
            format!(
                "left out at this width: {}; COLUMNS={} shows all",
                self.heads.join(", "),
                self.needed
            )
        })
    }
}

impl Grid {
    /// Creates a table with these column headings and alignments.
    pub(crate) fn new<'a>(heads: impl IntoIterator<Item = (&'a str, Align)>) -> Grid {
        let heads = heads.into_iter().map(|(head, align)| (head.to_owned(), align)).collect();
        Grid { heads, rows: Vec::new() }
    }

    /// Creates a table of left-aligned columns.
    pub(crate) fn of_text<const N: usize>(heads: [&str; N]) -> Grid {
        Grid::new(heads.map(|head| (head, Align::Left)))
    }

    /// Adds a row of cells without highlighting.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.toned_row(cells.into_iter().map(|cell| (cell.into(), Tone::Plain)));
    }

    /// Adds a row of cells, each with its highlighting. Names of other programs and users must not
    /// send escape sequences to the terminal.
    pub(crate) fn toned_row(&mut self, cells: impl IntoIterator<Item = (String, Tone)>) {
        let clean = |text: String| text.replace(|c: char| c.is_control() && c != '\n', " ");
        self.rows.push(cells.into_iter().map(|(text, tone)| (clean(text), tone)).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the table within the terminal's width.
    pub(crate) fn text(&self, ui: &Ui) -> String {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(ui.width);
        if ui.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        if self.heads.iter().any(|(head, _)| !head.is_empty()) {
            table.set_header(self.heads.iter().map(|(head, _)| head.as_str()));
        }
        for row in &self.rows {
            table.add_row(row.iter().map(|(text, tone)| {
                // A number and its per cent sign stay on one line.
                let cell = Cell::new(text.replace(" %", "\u{a0}%"));
                match tone {
                    Tone::Plain => cell,
                    Tone::Good => cell.fg(Color::Green).add_attribute(Attribute::Bold),
                    Tone::Bad => cell.fg(Color::Red).add_attribute(Attribute::Bold),
                    Tone::Unsure => cell.fg(Color::Yellow),
                }
            }));
        }
        let (whole, words_fit) = self.whole_columns(ui.width);
        for (at, column) in table.column_iter_mut().enumerate() {
            if self.heads.get(at).is_some_and(|(_, align)| *align == Align::Right) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if whole.contains(&at) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            } else if words_fit {
                let least = (self.longest_word(at) + PADDING).try_into().unwrap_or(u16::MAX);
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
            }
        }
        let text = table.to_string().replace('\u{a0}', " ");
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.join("\n")
    }

    /// Returns the table as it fits into the terminal's width without breaking a word or a figure:
    /// without as many of the columns `expendable` as necessary, the first one first; if that is
    /// not enough, with long words shortened in the middle.
    pub(crate) fn fitted(&self, ui: &Ui, expendable: &[&str]) -> (Grid, LeftOut) {
        let width = usize::from(ui.width);
        let (mut grid, mut left_out) = (self.clone(), LeftOut::default());
        left_out.needed = grid.least_width();
        for name in expendable {
            if grid.least_width() <= width {
                break;
            }
            if let Some(at) = grid.heads.iter().position(|(head, _)| head == name) {
                left_out.heads.push(grid.heads.remove(at).0);
                grid.rows
                    .iter_mut()
                    .filter(|row| row.len() > at)
                    .for_each(|row| drop(row.remove(at)));
            }
        }
        let longest = (0..grid.heads.len()).map(|at| grid.longest_word(at)).max().unwrap_or(0);
        for letters in (LEAST_TEXT..longest).rev() {
            if grid.least_width() <= width {
                break;
            }
            grid.shorten_words(letters);
        }
        // A figure and its unit stay on one line.
        for row in &mut grid.rows {
            for ((text, _), (_, align)) in row.iter_mut().zip(&grid.heads) {
                if *align == Align::Right {
                    *text = text.replace(' ', "\u{a0}");
                }
            }
        }
        (grid, left_out)
    }

    /// Width at which no word of a text and no figure is broken.
    fn least_width(&self) -> usize {
        let least = |column: usize| match self.heads[column].1 {
            Align::Right => self.widest(column),
            Align::Left => self.longest_word(column),
        };
        (0..self.heads.len()).map(|column| least(column) + PADDING).sum()
    }

    /// Shortens the words of texts to this number of letters, by what is in their middle.
    fn shorten_words(&mut self, letters: usize) {
        let shorten = |word: &str| {
            let all: Vec<char> = word.chars().collect();
            if all.len() <= letters {
                return word.to_owned();
            }
            // The end of a path or address says more than its begin.
            let begin = (letters - 1) / 3;
            let end = all.len() - (letters - 1 - begin);
            all[..begin].iter().chain(&['…']).chain(&all[end..]).collect()
        };
        for row in &mut self.rows {
            for ((text, _), (_, align)) in row.iter_mut().zip(&self.heads) {
                if *align == Align::Left {
                    *text = text.split(' ').map(shorten).collect::<Vec<_>>().join(" ");
                }
            }
        }
    }

    /// The texts in a column, with its heading.
    fn texts(&self, column: usize) -> impl Iterator<Item = &str> {
        let cells = self.rows.iter().filter_map(move |row| row.get(column)).map(|(text, _)| text);
        cells.chain([&self.heads[column].0]).map(String::as_str)
    }

    /// Width in characters of the longest text in a column.
    fn widest(&self, column: usize) -> usize {
        self.texts(column).map(|text| text.chars().count()).max().unwrap_or(0)
    }

    /// Width in characters of the longest word in a column. A number and its per cent sign are one word.
    fn longest_word(&self, column: usize) -> usize {
        let of_text = |text: &str| {
            let text = text.replace(" %", "\u{a0}%");
            text.split([' ', '\n']).map(|word| word.chars().count()).max().unwrap_or(0)
        };
        self.texts(column).map(of_text).max().unwrap_or(0)
    }

    /// Returns the columns that are not wrapped, and whether all others are wide enough for their longest words. If
    /// there is room, these are the columns of figures and of short text; otherwise only those of figures; otherwise
    /// none.
    fn whole_columns(&self, width: u16) -> (Vec<usize>, bool) {
        let widest = |column: usize| self.widest(column);
        let columns = 0..self.heads.len();
        let figures = |column: &usize| self.heads[*column].1 == Align::Right;
        let short = |column: &usize| figures(column) || widest(*column) <= WHOLE_TEXT;
        let fit = |whole: &Vec<usize>, words: bool| {
            let needed = |column: usize| match (whole.contains(&column), words) {
                (true, _) => widest(column),
                (false, true) => self.longest_word(column).max(widest(column).min(LEAST_TEXT)),
                (false, false) => widest(column).min(LEAST_TEXT),
            };
            columns.clone().map(|column| needed(column) + PADDING).sum::<usize>()
                <= usize::from(width)
        };
        let choices: [Vec<usize>; 3] = [
            columns.clone().filter(short).collect(),
            columns.clone().filter(figures).collect(),
            Vec::new(),
        ];
        // Words are broken only if no choice has room for them.
        let found = |words: bool| choices.iter().find(|whole| fit(whole, words)).cloned();
        match found(true) {
            Some(whole) => (whole, true),
            None => (found(false).unwrap_or_default(), false),
        }
    }

    /// Renders the table as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &mut dyn Iterator<Item = String>| {
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let plain = |text: &str| text.replace('|', "\\|").replace('\n', " ");
        let mut out = line(&mut self.heads.iter().map(|(head, _)| plain(head)));
        out.push_str(&line(&mut self.heads.iter().map(|(_, align)| match align {
            Align::Left => "---".to_owned(),
            Align::Right => "---:".to_owned(),
        })));
        for row in &self.rows {
            out.push_str(&line(&mut row.iter().map(|(text, _)| plain(text))));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_to_the_width_and_markdown_to_its_marks() {
        let mut grid = Grid::new([("name", Align::Left), ("value", Align::Right)]);
        grid.row(["a|b", "1"]);
        grid.row(["a name of many words that needs more than the width", "22"]);
        let ui = Ui { width: 40, ..Ui::plain() };
        let text = grid.text(&ui);
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        let markdown = grid.markdown();
        assert!(
            markdown.starts_with("| name | value |\n| --- | ---: |\n| a\\|b | 1 |\n"),
            "{markdown}"
        );
    }

    #[test]
    fn a_name_sends_nothing_to_the_terminal() {
        let mut grid = Grid::of_text(["name"]);
        grid.row(["a\u{1b}]0;title\u{7}b\u{9b}2Jc"]);
        let ui = Ui { colour: true, ..Ui::plain() };
        let text = grid.text(&ui) + &grid.markdown();
        assert!(!text.contains(['\u{7}', '\u{9b}']) && !text.contains("\u{1b}]"), "{text:?}");
    }

    #[test]
    fn short_words_and_percentages_stay_on_one_line() {
        let mut grid =
            Grid::new([("figure", Align::Left), ("A", Align::Right), ("verdict", Align::Left)]);
        grid.row(["CPU/message", "3.42 µs", "same within the bound that is stated, of 11.2 %"]);
        for width in 36..60 {
            let text = grid.text(&Ui { width, ..Ui::plain() });
            assert!(text.contains("CPU/message") && text.contains("11.2 %"), "{width}: {text}");
        }
    }

    #[test]
    fn no_word_is_broken_if_there_is_room_for_all() {
        let mut grid = Grid::new([
            ("candidate", Align::Left),
            ("95 % interval", Align::Right),
            ("", Align::Left),
        ]);
        grid.row([
            "tipc-node-seqpacket",
            "80.1–95.3 µs",
            "not pursued after 3 trials (achieves 66 %)",
        ]);
        grid.row(["cma", "too few trials", "not pursued"]);
        for width in 46..80 {
            let text = grid.text(&Ui { width, ..Ui::plain() });
            for word in ["candidate", "tipc-node-seqpacket", "interval", "pursued", "(achieves"] {
                assert!(text.contains(word), "{width}: {word} is broken:\n{text}");
            }
            assert!(
                text.lines().all(|l| l.chars().count() <= usize::from(width)),
                "{width}: {text}"
            );
        }
    }

    #[test]
    fn only_text_is_wrapped_as_long_as_the_figures_fit() {
        let mut grid = Grid::new([
            ("95 % interval", Align::Right),
            ("a", Align::Right),
            ("verdict", Align::Left),
        ]);
        grid.row([
            "-45.4..+40.6 %",
            "8.56 k msg/s",
            "unclear: the trials permit a difference of up to 83 %",
        ]);
        let text = grid.text(&Ui { width: 46, ..Ui::plain() });
        let figures = text.lines().nth(1).unwrap();
        assert!(figures.contains("-45.4..+40.6 %") && figures.contains("8.56 k msg/s"), "{text}");
        for width in [12, 20, 30, 46] {
            let text = grid.text(&Ui { width, ..Ui::plain() });
            let within = |line: &str| line.chars().count() <= usize::from(width).max(25);
            assert!(text.lines().all(within), "{width}: {text}");
        }
    }
    #[test]
    fn columns_are_left_out_and_words_shortened_before_anything_is_broken() {
        let mut grid = Grid::new([
            ("from", Align::Left),
            ("", Align::Left),
            ("to", Align::Left),
            ("by", Align::Left),
            ("→ bytes", Align::Right),
            ("think", Align::Right),
            ("queued", Align::Right),
        ]);
        grid.row([
            "redis-benchmark (32185)",
            "↔",
            "redis-server (13243)",
            "TCP on this host 127.0.0.1:7777",
            "2.48 MB",
            "1.22 µs",
            "0 B",
        ]);
        let at = |width: u16| {
            let ui = Ui { width, ..Ui::plain() };
            let (fitted, left_out) = grid.fitted(&ui, &["queued", "think"]);
            (fitted.text(&ui), left_out)
        };
        for (width, missing) in [(80, &[][..]), (70, &["queued"]), (66, &["queued", "think"])] {
            let (text, left_out) = at(width);
            assert_eq!(left_out.heads, missing, "{width}: {text}");
            let words = ["redis-benchmark", "redis-server", "127.0.0.1:7777", "2.48 MB"];
            let think = (!missing.contains(&"think")).then_some("1.22 µs");
            for word in words.into_iter().chain(think) {
                assert!(text.contains(word), "{width}: {word} is broken:\n{text}");
            }
            assert!(
                text.lines().all(|l| l.chars().count() <= usize::from(width)),
                "{width}: {text}"
            );
            assert_eq!(left_out.sentence().is_none(), missing.is_empty());
        }
        let needed = at(40).1.needed;
        assert!(at(needed as u16).1.heads.is_empty() && !at(needed as u16 - 1).1.heads.is_empty());
        let (text, _) = at(50);
        assert!(
            text.contains("red…") && text.contains("(32185)") && text.contains("2.48 MB"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 50), "{text}");
    }
}
