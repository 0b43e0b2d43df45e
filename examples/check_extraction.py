"""Invoices to JSON by an instruct model, the riskiest fields first.

    python examples/check_extraction.py MODEL [CLUSTERS]

MODEL is a directory or hub id of an instruct model, for example SmolLM2-135M-Instruct.
"""

from __future__ import annotations

import sys
from datetime import date
from typing import Literal

import rich
from pydantic import BaseModel
from rich.markup import escape
from rich.table import Table

import semtoken as st
from semtoken.models.probing import with_choices


class Invoice(BaseModel):
    """What is wanted of an invoice."""

    invoice_number: str
    seller: str
    due_date: date
    currency: Literal["EUR", "USD", "GBP"]
    total: float
    paid: bool


EXAMPLE = "INVOICE R1182 from Café Périgord, 3 March 2023. Net 80.00, total 95.20 USD, payable until 2 April 2023. PAID"
READ = Invoice(
    invoice_number="R1182", seller="Café Périgord", due_date=date(2023, 4, 2), currency="USD", total=95.2, paid=True
)
INVOICES = (
    "Müller Werkzeuge\nInvoice INV-4711, order 88213\n12 hammers: 240.00 EUR, tax 45.60, due by 14.06.2024: 285.60",
    "Dear Ms Lopez, here is bill A-102 of Oak & Sons for 3 chairs, 410.50 GBP altogether. We have received your money "
    "on 2024-01-09, before it was due on 2024-01-20.",
)


def messages(invoice: str) -> list[dict[str, str]]:
    """The conversation that asks for the fields, after one worked example."""
    instruction = f"Read the invoice and answer with one JSON object with the fields {', '.join(Invoice.model_fields)}."
    return [
        {"role": "system", "content": instruction},
        {"role": "user", "content": EXAMPLE},
        {"role": "assistant", "content": READ.model_dump_json()},
        {"role": "user", "content": invoice},
    ]


name, clusters = (*sys.argv[1:], None)[:2] if len(sys.argv) > 1 else sys.exit(__doc__)
model = st.ScoredModel.from_pretrained(name, clusters=clusters)
prompts = [messages(invoice) for invoice in INVOICES]
answers = model.generate(prompts, max_new_tokens=120)

rows = []
for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True), 1):
    fields = answer.parts(by="field", schema=Invoice)
    rows += [(number, part) for part in with_choices(model, prompt, answer, fields, Invoice)]
rows.sort(key=lambda row: -1.0 if row[1].confidence is None else row[1].confidence)

table = Table("invoice", "field", "value", "confidence", "ends here", "could also be")
for number, part in rows:
    value = part.text if part.present else "(missing)"
    ends = "" if part.closing is None else f"{part.closing:.3f}"
    confidence = "" if part.confidence is None else f"{part.confidence:.3f}"
    others = {
        name: probability_correct
        for name, probability_correct in (part.choices or {}).items()
        if name != part.text and probability_correct >= 0.01
    }
    also = ", ".join(f"{name} {probability_correct:.2f}" for name, probability_correct in others.items())
    table.add_row(str(number), part.path, escape(value), confidence, ends, escape(also))
rich.print(table)
