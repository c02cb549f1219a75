"""The tables: each function takes the `Data` of a study and returns a `TableView`."""
