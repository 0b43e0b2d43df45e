"""Invoices with known fields: letters, tables, receipts and e-mails, made from a seed.

Each document holds the eight fields of `FIELDS` and things that are easily taken for them: order numbers, subtotals,
other dates, the address of the buyer. Names and cities with accents are among them, since they are spelled by pieces of
characters.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import date, timedelta

FIELDS = ("invoice_number", "seller", "buyer", "invoice_date", "due_date", "currency", "total", "paid")
SELLERS = (
    *("Northwind Traders", "Müller Werkzeuge", "Café Périgord", "Acme Tools", "Blue River Printing", "Kowalski Meble"),
    *("Société Lumière", "Green Valley Farm", "Ångström Optik", "Lakeside Plumbing", "Oak & Sons", "Señor Azulejo"),
)
BUYERS = (
    *("Maria Lopez", "John Whitfield", "Zoë Sanders", "Tomáš Novák", "Priya Sharma", "Olaf Lindqvist", "François Roux"),
    *("Harbor Hotel", "Sunrise School", "Baker Street Books", "Jürgen Weiß", "Anna Bianchi", "Delta Logistics"),
)
CURRENCIES = ("EUR", "USD", "GBP", "CHF", "SEK")
SIGNS = {"EUR": "€", "USD": "$", "GBP": "£", "CHF": "CHF", "SEK": "kr"}
GOODS = ("paper", "hammers", "coffee beans", "chairs", "lamps", "roof tiles", "software support", "catering", "repairs")


@dataclass(frozen=True)
class Document:
    """A document and what it says."""

    id: int
    text: str
    fields: dict[str, str | float | bool]


def make_documents(n: int, seed: int = 0) -> list[Document]:
    """`n` documents, the same for the same seed."""
    draw = random.Random(seed)  # noqa: S311
    return [_document(draw, i) for i in range(n)]


def _document(draw: random.Random, number: int) -> Document:
    issued = date(2019, 1, 1) + timedelta(days=draw.randrange(2200))
    due = issued + timedelta(days=draw.choice([7, 10, 14, 21, 30, 45, 60]))
    cents = draw.choice([0, 0, 50, draw.randrange(100)])
    net = draw.randrange(12, 9000) + cents / 100
    tax = round(net * draw.choice([0.07, 0.1, 0.19, 0.2]), 2)
    fields: dict[str, str | float | bool] = {
        "invoice_number": draw.choice(["INV-", "R", "2023/", "A-", ""]) + str(draw.randrange(1000, 99999)),
        "seller": draw.choice(SELLERS),
        "buyer": draw.choice(BUYERS),
        "invoice_date": issued.isoformat(),
        "due_date": due.isoformat(),
        "currency": draw.choice(CURRENCIES),
        "total": round(net + tax, 2),
        "paid": draw.random() < 0.4,
    }
    extra = {
        "order": str(draw.randrange(10000, 999999)),
        "net": f"{net:.2f}",
        "tax": f"{tax:.2f}",
        "goods": draw.choice(GOODS),
        "count": str(draw.randrange(2, 60)),
        "delivered": (issued - timedelta(days=draw.randrange(1, 9))).isoformat(),
    }
    style = draw.choice([_letter, _table, _mail, _receipt])
    return Document(number, style(draw, fields, extra, issued, due), fields)


def _spelled(draw: random.Random, day: date) -> str:
    style = draw.randrange(4)
    if style == 0:
        return day.isoformat()
    if style == 1:
        return f"{day.day} {day:%B} {day.year}"
    if style == 2:
        return f"{day:%B} {day.day}, {day.year}"
    return f"{day:%d.%m.%Y}"


def _money(draw: random.Random, amount: float | str, currency: str) -> str:
    figure = f"{float(amount):,.2f}" if draw.random() < 0.5 else f"{float(amount):.2f}"
    return f"{SIGNS[currency]}{figure}" if draw.random() < 0.5 and currency != "SEK" else f"{figure} {currency}"


def _state(fields: dict[str, str | float | bool], paid: str, open_: str) -> str:
    return paid if fields["paid"] else open_


def _letter(draw: random.Random, f: dict[str, str | float | bool], x: dict[str, str], issued: date, due: date) -> str:
    state = _state(f, "We have received your payment in full, thank you.", "This invoice has not been paid yet.")
    currency = str(f["currency"])
    return (
        f"{f['seller']}\n\nTo: {f['buyer']}\n{_spelled(draw, issued)}\n\nInvoice {f['invoice_number']} for your order "
        f"{x['order']} ({x['count']} {x['goods']}, delivered on {x['delivered']})\n\nThe goods come to "
        f"{_money(draw, x['net'], currency)}, taxes to {_money(draw, x['tax'], currency)}. The amount of "
        f"{_money(draw, f['total'], currency)} is due by {_spelled(draw, due)}. All amounts in {currency}.\n{state}"
    )


def _table(draw: random.Random, f: dict[str, str | float | bool], x: dict[str, str], issued: date, due: date) -> str:
    return (
        f"INVOICE\nNo.: {f['invoice_number']}   Order: {x['order']}\nFrom: {f['seller']}\nBill to: {f['buyer']}\n"
        f"Date: {_spelled(draw, issued)}   Due: {_spelled(draw, due)}\n{x['count']} x {x['goods']}\n"
        f"Net: {x['net']}\nTax: {x['tax']}\nTotal ({f['currency']}): {float(f['total']):.2f}\n"
        f"Status: {_state(f, 'PAID', 'OPEN')}"
    )


def _mail(draw: random.Random, f: dict[str, str | float | bool], x: dict[str, str], issued: date, due: date) -> str:
    state = _state(f, "Your card was charged, nothing is left to pay.", "Please transfer the money in time.")
    return (
        f"Subject: Your invoice {f['invoice_number']}\nSent: {_spelled(draw, issued)}\n\nDear {f['buyer']},\n"
        f"here is the bill for {x['count']} {x['goods']} (customer reference {x['order']}): "
        f"{_money(draw, x['net'], str(f['currency']))} plus tax, {float(f['total']):.2f} {f['currency']} altogether, "
        f"payable until {_spelled(draw, due)}. {state}\nBest regards, {f['seller']}"
    )


def _receipt(draw: random.Random, f: dict[str, str | float | bool], x: dict[str, str], issued: date, due: date) -> str:
    state = _state(f, "Paid by card.", "To be paid by bank transfer.")
    return (
        f"*** {f['seller']} ***\n{_spelled(draw, issued)} / receipt {f['invoice_number']} / till {x['count']}\n"
        f"{x['goods']} {x['net']}\nVAT {x['tax']}\nSUM {_money(draw, f['total'], str(f['currency']))}\n"
        f"Customer: {f['buyer']} ({f['currency']} account)\nDue {_spelled(draw, due)}. {state}"
    )
