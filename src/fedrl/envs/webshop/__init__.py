"""The shop: pages, products, search, goals and reward of WebShop, native."""
