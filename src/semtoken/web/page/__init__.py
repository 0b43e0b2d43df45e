"""The page: what people see of a score, served by `semtoken serve` or as one static file of `semtoken check`.

The page itself is in `files/`: plain JavaScript modules without a build step (Preact with htm, vendored), one style
sheet, and every sentence in `strings.js` or `review-strings.js`. It shows what the server or the file says and
computes no scores.

- `static`: scored answers and the page as one HTML file that asks for nothing else
- `scored`: a page of answers that `semtoken score` wrote
- `ranked`: replies that `semtoken check` ranked, as a page or another file
- `routes`: the page and its facts as routes of a server
"""

from semtoken.web.page.static import static_page

__all__ = ["static_page"]
