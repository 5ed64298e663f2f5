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

    /// Adds a row of cells, each with its highlighting.
    pub(crate) fn toned_row(&mut self, cells: impl IntoIterator<Item = (String, Tone)>) {
        self.rows.push(cells.into_iter().collect());
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

    /// The texts in a column, with its heading.
    fn texts(&self, column: usize) -> impl Iterator<Item = &str> {
        let cells = self.rows.iter().filter_map(move |row| row.get(column)).map(|(text, _)| text);
        cells.chain([&self.heads[column].0]).map(String::as_str)
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
        let widest =
            |column: usize| self.texts(column).map(|text| text.chars().count()).max().unwrap_or(0);
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
}
