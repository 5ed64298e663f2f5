//! Least squares with few columns, and Student's t.

/// A fitted coefficient.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coefficient {
    pub(super) value: f64,
    /// The standard error at unit noise: square root of the diagonal element of the inverse normal matrix.
    pub(super) unit_error: f64,
}

/// A least-squares fit.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    pub(super) coefficients: Vec<Coefficient>,
    /// Residual variance; 0 if no degrees of freedom are left.
    pub(super) variance: f64,
    pub(super) freedom: usize,
}

/// Fits `y` to the columns of `rows`; `None` if the columns are linearly dependent or there are too few rows.
pub(super) fn fit(rows: &[Vec<f64>], y: &[f64]) -> Option<Fit> {
    let columns = rows.first()?.len();
    let freedom = rows.len().checked_sub(columns)?;
    let mut normal = vec![vec![0.0; columns]; columns];
    let mut right = vec![0.0; columns];
    for (row, value) in rows.iter().zip(y) {
        for i in 0..columns {
            right[i] += row[i] * value;
            for j in 0..columns {
                normal[i][j] += row[i] * row[j];
            }
        }
    }
    let inverse = invert(normal)?;
    let beta: Vec<f64> =
        inverse.iter().map(|row| row.iter().zip(&right).map(|(a, b)| a * b).sum()).collect();
    let residual: f64 = rows
        .iter()
        .zip(y)
        .map(|(row, value)| {
            let fitted: f64 = row.iter().zip(&beta).map(|(a, b)| a * b).sum();
            (value - fitted).powi(2)
        })
        .sum();
    let coefficients = beta
        .iter()
        .enumerate()
        .map(|(i, &value)| Coefficient { value, unit_error: inverse[i][i].max(0.0).sqrt() })
        .collect();
    let variance = if freedom == 0 { 0.0 } else { residual / freedom as f64 };
    Some(Fit { coefficients, variance, freedom })
}

/// Inverts a matrix by Gauss-Jordan elimination with partial pivoting; `None` if it is singular.
fn invert(mut m: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let n = m.len();
    let scale = m.iter().flatten().fold(0.0_f64, |a, b| a.max(b.abs()));
    let mut inverse: Vec<Vec<f64>> =
        (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    for column in 0..n {
        let pivot =
            (column..n).max_by(|&a, &b| m[a][column].abs().total_cmp(&m[b][column].abs()))?;
        if m[pivot][column].abs() <= scale * 1e-12 {
            return None;
        }
        m.swap(column, pivot);
        inverse.swap(column, pivot);
        let by = m[column][column];
        for j in 0..n {
            m[column][j] /= by;
            inverse[column][j] /= by;
        }
        for row in (0..n).filter(|&row| row != column) {
            let by = m[row][column];
            for j in 0..n {
                let (a, b) = (m[column][j], inverse[column][j]);
                m[row][j] -= by * a;
                inverse[row][j] -= by * b;
            }
        }
    }
    Some(inverse)
}

/// Two-sided p-value of Student's t with `freedom` degrees of freedom.
pub(super) fn student_p(t: f64, freedom: f64) -> f64 {
    if !t.is_finite() {
        return 0.0;
    }
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The regularised incomplete beta function, by its continued fraction (Lentz's method; Abramowitz and Stegun 26.5.8).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front =
        (libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b) + a * x.ln() + b * (-x).ln_1p())
            .exp()
            / a;
    let tiny = 1e-300;
    let (mut c, mut d) = (1.0, 1.0 - (a + b) * x / (a + 1.0));
    d = 1.0 / if d.abs() < tiny { tiny } else { d };
    let mut fraction = d;
    for m in 1..300 {
        let k = f64::from(m);
        let even = k * (b - k) * x / ((a + 2.0 * k - 1.0) * (a + 2.0 * k));
        let odd = -(a + k) * (a + b + k) * x / ((a + 2.0 * k) * (a + 2.0 * k + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 + term * d;
            d = 1.0 / if d.abs() < tiny { tiny } else { d };
            c = 1.0 + term / c;
            if c.abs() < tiny {
                c = tiny;
            }
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front * fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_p_agrees_with_printed_tables() {
        // Two-sided critical values from a printed table of Student's t.
        for (t, freedom, p) in
            [(12.706, 1.0, 0.05), (2.776, 4.0, 0.05), (3.355, 8.0, 0.01), (2.042, 30.0, 0.05)]
        {
            assert!((student_p(t, freedom) - p).abs() < 2e-5 * (1.0 + t), "{t} {freedom}");
        }
        assert!((student_p(0.0, 5.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_plane_is_recovered_exactly() {
        let rows: Vec<Vec<f64>> =
            (0..6).map(|i| vec![1.0, f64::from(i), f64::from(i * i)]).collect();
        let y: Vec<f64> = rows.iter().map(|r| 3.0 - 2.0 * r[1] + 0.5 * r[2]).collect();
        let fit = fit(&rows, &y).unwrap();
        for (c, want) in fit.coefficients.iter().zip([3.0, -2.0, 0.5]) {
            assert!((c.value - want).abs() < 1e-9);
        }
        assert!(fit.variance < 1e-15);
        assert_eq!(fit.freedom, 3);
    }

    #[test]
    fn dependent_columns_are_refused() {
        let rows: Vec<Vec<f64>> =
            (0..5).map(|i| vec![1.0, f64::from(i), 2.0 * f64::from(i)]).collect();
        assert!(fit(&rows, &[1.0, 2.0, 3.0, 4.0, 5.0]).is_none());
    }
}
